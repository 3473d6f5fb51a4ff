/**
 * Counts the requests of each key that were refused or failed, and lists the last ones.
 */
import {
  type FailedRequest,
  type FailureReason,
  USAGE_KINDS,
  usageDay,
  usageField,
  usageHour,
} from "@gateway/shared/keys/limiter_state";
import * as record from "@gateway/shared/keys/record";
import { FAILED_REQUESTS, REQUEST_LIMITS } from "@gateway/shared/limits";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ApiError } from "@gateway/shared/openai/error";
import type { WallNow } from "@gateway/shared/process/clock";
import { clip } from "@gateway/shared/process/error_text";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { RECORD_FAILED } from "./scripts.ts";

export interface Failure {
  requestId: string;
  error: ApiError;
  /** As the client named it; null if the body was not read. */
  model: string | null;
  /** `cut`: it ran, and its stream had started. */
  how: "refused" | "failed" | "cut";
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

export type FailedRequests = ReturnType<typeof createFailedRequests>;

/**
 * Sums up failed requests in memory and writes them once a second, so that a flood of
 * them is one call per key and second. While Redis is unavailable, they are kept. What
 * does not fit into memory, or may have been written by a failed call, counts as lost.
 */
export function createFailedRequests({ redis, catalog, now, log, onLost }: {
  redis: Pick<RedisLink, "state" | "evalScript">;
  /** Only its models become names of counters. */
  catalog: Pick<Catalog, "has">;
  now: WallNow;
  log: Log;
  onLost: (requests: number) => void;
}) {
  const batches = new Map<string, Batch>();
  let held = 0;
  let lost = 0;
  let cause: unknown;
  let timer: ReturnType<typeof setInterval> | undefined;
  let writing = Promise.resolve();

  const write = async ([name, batch]: [string, Batch]): Promise<void> => {
    const { principal, day, requests, counts, entries } = batch;
    batches.delete(name);
    held -= sizeOf(batch);
    const keys = [
      record.usageKey(principal, day),
      record.ownerUsageKey(principal.ownerId, day),
      record.failedKey(principal),
    ];
    const args = [
      ...[record.recordKey(principal), counts.size, ...counts].flat().map(
        String,
      ),
      ...entries.map((entry) => JSON.stringify(entry)),
    ];
    try {
      await redis.evalScript(RECORD_FAILED, { keys, args }, PATIENT);
    } catch (error) {
      lost += requests;
      cause = error;
    }
  };

  const writeAll = async (): Promise<void> => {
    const due = [...batches];
    while (due.length > 0 && redis.state === "ready") {
      await Promise.all(due.splice(0, WRITES).map(write));
    }
    if (lost === 0) return;
    log.warn("failed_requests_lost", { requests: lost, error: cause });
    onLost(lost);
    [lost, cause] = [0, undefined];
  };

  /** Writes what is held, once the running write is done. Never rejects. */
  const flush = (): Promise<void> => writing = writing.then(writeAll);

  return {
    /** Records a request, unless its key does not exist. Does not block or throw. */
    add(
      principal: record.Principal,
      { requestId, error, model, how }: Failure,
    ): void {
      const reason = reasonOf(error, how);
      if (reason === null) return;
      if (held >= heldMax) return void (lost += 1);
      const timeMs = now();
      const day = usageDay(timeMs);
      const name = `${principal.keyId} ${day}`;
      const batch: Batch = batches.get(name) ??
        { principal, day, requests: 0, counts: new Map(), entries: [] };
      batches.set(name, batch);
      held -= sizeOf(batch);
      batch.requests += 1;
      const known = model !== null && catalog.has(model) ? model : "";
      const { refused } = USAGE_KINDS;
      for (const counter of how === "refused" ? [reason, refused] : [reason]) {
        const field = usageField(usageHour(timeMs), counter, known);
        batch.counts.set(field, (batch.counts.get(field) ?? 0) + 1);
      }
      batch.entries.push({
        timeMs,
        reason,
        status: how === "cut" ? 200 : error.status,
        code: error.wireCode,
        param: error.param,
        model: model && clip(model, REQUEST_LIMITS.modelCharsMax),
        requestId: publicRequestId(requestId),
      });
      if (batch.entries.length > listedMax) batch.entries.shift();
      held += sizeOf(batch);
    },
    flush,
    start(): void {
      timer ??= setInterval(flush, writeMs);
    },
    /** Writes the rest, and counts as lost what Redis does not take. */
    async stop(): Promise<void> {
      clearInterval(timer);
      await flush();
      for (const { requests } of batches.values()) lost += requests;
      batches.clear();
      await flush();
    },
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
