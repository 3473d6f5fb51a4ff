/**
 * Counts the requests of each key that were refused or failed, and writes the log of
 * these and of slow ones.
 */
import {
  type FailureReason,
  USAGE_KINDS,
  usageDay,
  type UsageEndpoint,
  usageField,
  usageHour,
} from "@gateway/shared/keys/limiter_state";
import { budgetText } from "@gateway/shared/keys/budget_state";
import * as record from "@gateway/shared/keys/record";
import { FAILED_REQUESTS } from "@gateway/shared/keys/limits";
import {
  encodeRow,
  KEY_DELETED,
  type RequestOutcome,
  type RequestRow,
} from "@gateway/shared/keys/request_row";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import type { ApiError } from "@gateway/shared/openai/error";
import type { WallNow } from "@gateway/shared/process/clock";
import { clip } from "@gateway/shared/process/error_text";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { RECORD_FAILED } from "./scripts.ts";

/** A request that was refused, that failed while it ran, or that was slow. */
export interface Failure {
  requestId: string;
  /** Null for one that was only slow. */
  error: ApiError | null;
  /** The status of its answer. */
  status: number;
  /** The model as the client named it; null if the body was not read. */
  model: string | null;
  /** The endpoint by which it is counted; absent: it is not known. */
  endpoint?: UsageEndpoint | null;
  how: RequestOutcome;
  clientAddress: string;
  /** From its arrival to its end, in ms. */
  durationMs: number;
  /** From its arrival to the first byte of its answer, in ms; null: none. */
  firstByteMs: number | null;
  /** The model server that was asked last; absent: none is known. */
  backend?: string | undefined;
  /** How many workers were offered it. */
  attempts: number;
}

/** What {@link FailedRequests} needs. */
export interface FailedRequestsOptions {
  redis: Pick<RedisLink, "state" | "evalScript">;
  /** The models that may be in the name of a counter; others are counted without. */
  catalog: { find(name: string): { readonly id: string } | undefined };
  now: WallNow;
  log: Log;
  /** How long rows of the log are kept, and how many of an owner. */
  requestLogMs: number;
  requestLogRows: number;
  /** Called with the number of requests that are in no count. */
  onLost: (requests: number) => void;
}

/** The counts of one key and day that are not written yet. */
interface Batch {
  principal: record.Principal;
  day: string;
  requests: number;
  counts: Map<string, number>;
  rows: RequestRow[];
  /** How many of the rows have a reason, and the last one. */
  reasons: Map<string, { count: number; last: RequestRow }>;
}

const PATIENT = { deadlineMs: 1_000 };
/** Writes that are sent at once, so that Redis is never blocked for long. */
const WRITES = 100;
const { rowsPerWrite, heldMax, writeMs } = FAILED_REQUESTS;

/**
 * Sums up failed requests in memory and writes them once a second, so that a flood of
 * them is one call per key and second, with a few rows of the log. While Redis is
 * unavailable, they are kept. What does not fit into memory, or may have been written
 * by a failed call, counts as lost.
 */
export class FailedRequests {
  readonly #options: FailedRequestsOptions;
  readonly #batches = new Map<string, Batch>();
  /** Counters and entries of all batches. */
  #size = 0;
  #lost = 0;
  /** The error of the last write that failed. */
  #cause: unknown;
  #timer: ReturnType<typeof setInterval> | undefined;
  #writing = Promise.resolve();

  constructor(options: FailedRequestsOptions) {
    this.#options = options;
  }

  /** Records a request of a key that exists, or did. Does not block or throw. */
  add(principal: record.Principal, failure: Failure): void {
    const { error, how } = failure;
    const reason = error && reasonOf(error, how);
    if (this.#size >= heldMax) {
      this.#lost += 1;
      return;
    }
    const timeMs = this.#options.now();
    const batch = this.#batchOf(principal, usageDay(timeMs));
    this.#size -= sizeOf(batch);
    batch.requests += 1;
    if (reason !== null) {
      for (const counter of this.#countersOf(failure, reason, timeMs)) {
        batch.counts.set(counter, (batch.counts.get(counter) ?? 0) + 1);
      }
    }
    addRow(batch, principal, { ...failure, reason, timeMs });
    this.#size += sizeOf(batch);
  }

  /** Writes what is held, once the running write is done. Never rejects. */
  flush(): Promise<void> {
    this.#writing = this.#writing.then(() => this.#writeAll());
    return this.#writing;
  }

  /** Writes once a second from now on. */
  start(): void {
    this.#timer ??= setInterval(() => this.flush(), writeMs);
  }

  /** Writes the rest, and counts as lost what Redis does not take. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.flush();
    for (const { requests } of this.#batches.values()) this.#lost += requests;
    this.#batches.clear();
    await this.flush();
  }

  #batchOf(principal: record.Principal, day: string): Batch {
    const name = `${principal.keyId} ${day}`;
    const batch: Batch = this.#batches.get(name) ?? {
      principal,
      day,
      requests: 0,
      counts: new Map(),
      rows: [],
      reasons: new Map(),
    };
    this.#batches.set(name, batch);
    return batch;
  }

  #countersOf(
    { model, endpoint, how }: Failure,
    reason: FailureReason,
    timeMs: number,
  ): string[] {
    const { id = "" } = this.#options.catalog.find(model ?? "") ?? {};
    const counters = how === "refused"
      ? [reason, USAGE_KINDS.refused]
      : [reason];
    const subject = { model: id, endpoint };
    return counters.map((counter) =>
      usageField(usageHour(timeMs), counter, subject)
    );
  }

  async #writeAll(): Promise<void> {
    const { redis, log, onLost } = this.#options;
    const due = [...this.#batches];
    while (due.length > 0 && redis.state === "ready") {
      const next = due.splice(0, WRITES);
      await Promise.all(next.map(([name, batch]) => this.#write(name, batch)));
    }
    if (this.#lost === 0) return;
    const requests = this.#lost;
    log.warn("failed_requests_lost", { requests, error: this.#cause });
    onLost(requests);
    this.#lost = 0;
    this.#cause = undefined;
  }

  async #write(name: string, batch: Batch): Promise<void> {
    const { principal, day, requests, counts, rows } = batch;
    this.#batches.delete(name);
    this.#size -= sizeOf(batch);
    const keys = [
      record.usageKey(principal, day),
      record.ownerUsageKey(principal.ownerId, day),
      record.requestLogKey(principal.ownerId),
      record.REQUEST_LOGS_KEY,
    ];
    const { redis, requestLogMs, requestLogRows } = this.#options;
    const args = [
      principal.ownerId,
      String(requestLogRows),
      String(requestLogMs),
      String(counts.size),
      ...counts.entries().flatMap((entry) => entry.map(String)),
      ...rows.map(encodeRow),
    ];
    try {
      await redis.evalScript(RECORD_FAILED, { keys, args }, PATIENT);
    } catch (error) {
      this.#lost += requests;
      this.#cause = error;
    }
  }
}

/** What the log has of a request, and the reason; null: not counted. */
interface Noted extends Failure {
  readonly reason: FailureReason | null;
  readonly timeMs: number;
}

/** Adds a row to a batch, or counts the request in the last one like it. */
function addRow(
  batch: Batch,
  { keyId }: record.Principal,
  { requestId, error, reason: counted, model, how, ...noted }: Noted,
): void {
  const reason = error === null ? "" : counted ?? KEY_DELETED;
  const name = `${how} ${reason}`;
  const { count, last } = batch.reasons.get(name) ?? { count: 0, last: null };
  if (last !== null && count >= rowsPerWrite) {
    last.more += 1;
    return;
  }
  const row: RequestRow = {
    timeMs: noted.timeMs,
    requestId: publicRequestId(requestId),
    keyId,
    outcome: how,
    status: noted.status,
    code: error?.wireCode ?? "",
    reason,
    param: clip(error?.param ?? "", REQUEST_LIMITS.modelCharsMax),
    model: clip(model ?? "", REQUEST_LIMITS.modelCharsMax),
    endpoint: noted.endpoint ?? "",
    durationMs: noted.durationMs,
    firstByteMs: noted.firstByteMs,
    backend: noted.backend ?? "",
    attempts: noted.attempts,
    clientAddress: noted.clientAddress,
    more: 0,
    budget: error?.budget ? budgetText(error.budget) : "",
  };
  batch.rows.push(row);
  batch.reasons.set(name, { count: count + 1, last: row });
}

const sizeOf = ({ counts, rows }: Batch) => counts.size + rows.length;

/** Null for a key that does not exist any more: its usage is gone, too. */
function reasonOf(
  { reason, code, status }: ApiError,
  how: Failure["how"],
): FailureReason | null {
  if (reason !== null || code === "unauthorized") return reason;
  if (code === "key_revoked") return "key_disabled";
  if (code === "request_stopped") return code;
  if (code === "model_not_found") return "unknown_model";
  if (code === "upstream_rate_limited") return "model_server_limit";
  if (status < 500) return "invalid_request";
  return how === "cut" ? how : "server";
}
