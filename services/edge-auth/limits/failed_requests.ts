/**
 * Counts the requests of each key that were refused or failed, and lists the last ones.
 */
import {
  type FailedRequest,
  type FailureReason,
  USAGE_KINDS,
  usageDay,
  type UsageEndpoint,
  usageField,
  usageHour,
} from "@gateway/shared/keys/limiter_state";
import * as record from "@gateway/shared/keys/record";
import { FAILED_REQUESTS } from "@gateway/shared/keys/limits";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import type { ApiError } from "@gateway/shared/openai/error";
import type { WallNow } from "@gateway/shared/process/clock";
import { clip } from "@gateway/shared/process/error_text";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { RECORD_FAILED } from "./scripts.ts";

/** A request that was refused, or that failed while it ran. */
export interface Failure {
  requestId: string;
  error: ApiError;
  /** The model as the client named it; null if the body was not read. */
  model: string | null;
  /** The endpoint by which it is counted; absent: it is not known. */
  endpoint?: UsageEndpoint | null;
  /** `cut`: it ran, and its stream had started. */
  how: "refused" | "failed" | "cut";
}

/** What {@link FailedRequests} needs. */
export interface FailedRequestsOptions {
  redis: Pick<RedisLink, "state" | "evalScript">;
  /** The models that may be in the name of a counter; others are counted without. */
  catalog: { find(name: string): { readonly id: string } | undefined };
  now: WallNow;
  log: Log;
  /** Called with the number of requests that are in no count. */
  onLost: (requests: number) => void;
}

/** The counts of one key and day that are not written yet. */
interface Batch {
  principal: record.Principal;
  day: string;
  requests: number;
  counts: Map<string, number>;
  entries: FailedRequest[];
}

const PATIENT = { deadlineMs: 1_000 };
/** Writes that are sent at once, so that Redis is never blocked for long. */
const WRITES = 100;
const { listedMax, heldMax, writeMs } = FAILED_REQUESTS;

/**
 * Sums up failed requests in memory and writes them once a second, so that a flood of
 * them is one call per key and second. While Redis is unavailable, they are kept. What
 * does not fit into memory, or may have been written by a failed call, counts as lost.
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

  /** Records a request, unless its key does not exist. Does not block or throw. */
  add(principal: record.Principal, failure: Failure): void {
    const { error, how } = failure;
    const reason = reasonOf(error, how);
    if (reason === null) return;
    if (this.#size >= heldMax) {
      this.#lost += 1;
      return;
    }
    const timeMs = this.#options.now();
    const batch = this.#batchOf(principal, usageDay(timeMs));
    this.#size -= sizeOf(batch);
    batch.requests += 1;
    for (const counter of this.#countersOf(failure, reason, timeMs)) {
      batch.counts.set(counter, (batch.counts.get(counter) ?? 0) + 1);
    }
    batch.entries.push(entryOf(failure, reason, timeMs));
    if (batch.entries.length > listedMax) batch.entries.shift();
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
    const batch = this.#batches.get(name) ??
      { principal, day, requests: 0, counts: new Map(), entries: [] };
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
    const { principal, day, requests, counts, entries } = batch;
    this.#batches.delete(name);
    this.#size -= sizeOf(batch);
    const keys = [
      record.usageKey(principal, day),
      record.ownerUsageKey(principal.ownerId, day),
      record.failedKey(principal),
    ];
    const args = [
      record.recordKey(principal),
      String(counts.size),
      ...counts.entries().flatMap((entry) => entry.map(String)),
      ...entries.map((entry) => JSON.stringify(entry)),
    ];
    const { redis } = this.#options;
    try {
      await redis.evalScript(RECORD_FAILED, { keys, args }, PATIENT);
    } catch (error) {
      this.#lost += requests;
      this.#cause = error;
    }
  }
}

function entryOf(
  { requestId, error, model, how }: Failure,
  reason: FailureReason,
  timeMs: number,
): FailedRequest {
  return {
    timeMs,
    reason,
    status: how === "cut" ? 200 : error.status,
    code: error.wireCode,
    param: error.param,
    model: model && clip(model, REQUEST_LIMITS.modelCharsMax),
    requestId: publicRequestId(requestId),
  };
}

const sizeOf = ({ counts, entries }: Batch) => counts.size + entries.length;

/** Null for a key that does not exist: nobody could see it. */
function reasonOf(
  { reason, code, status }: ApiError,
  how: Failure["how"],
): FailureReason | null {
  if (reason !== null || code === "unauthorized") return reason;
  if (code === "key_revoked") return "key_disabled";
  if (code === "model_not_found") return "unknown_model";
  if (code === "upstream_rate_limited") return "model_server_limit";
  if (status < 500) return "invalid_request";
  return how === "cut" ? how : "server";
}
