/** Creates the backends of every model: one pool each, with a log line per attempt. */
import { setTimeout } from "node:timers/promises";
import { randomBase62 } from "@gateway/shared/keys/key";
import type { ModelConfig } from "@gateway/shared/models/catalog";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { publicRequestId, randomBytes } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import { UpstreamError } from "./backends/errors.ts";
import { OpenAiBackend } from "./backends/openai.ts";
import { type AttemptReport, BackendPool } from "./backends/pool.ts";
import type { WorkerConfig } from "./config.ts";

const CALL_ID_CHARS = 24;
/** Outcomes that are not failures of the backend. */
const QUIET_OUTCOMES: ReadonlySet<string> = new Set([
  "success",
  "aborted",
  "request",
]);

/** The backends of each model by its id. `onAttempt` is for metrics and must not throw. */
export function createBackends(
  { catalog, backendKeys, log, onAttempt }:
    & Pick<WorkerConfig, "catalog" | "backendKeys">
    & { log: Log; onAttempt: (model: string, report: AttemptReport) => void },
): ReadonlyMap<string, BackendPool> {
  const createPool = ({ id, backends }: ModelConfig) =>
    new BackendPool({
      backends: backends.map((config) =>
        new OpenAiBackend({
          config,
          publicModel: id,
          apiKey: backendKeys.get(config.api_key_env ?? "") ?? null,
          now: monotonicNow,
          wallNow,
          newToolCallId: () =>
            `call_${randomBase62(CALL_ID_CHARS, randomBytes)}`,
        })
      ),
      now: monotonicNow,
      random: Math.random,
      sleep,
      onAttempt: (report) => {
        onAttempt(id, report);
        logAttempt(log, id, report);
      },
    });
  return new Map(
    [...catalog.values()].map((model) => [model.id, createPool(model)]),
  );
}

function logAttempt(log: Log, model: string, report: AttemptReport): void {
  const { requestId, backend, outcome, durationMs, error } = report;
  const line = {
    requestId: publicRequestId(requestId),
    model,
    backend,
    outcome,
    durationMs: Math.round(durationMs),
  };
  if (QUIET_OUTCOMES.has(outcome)) log.debug("backend_attempt", line);
  else log.warn("backend_attempt_failed", { ...line, error: errorText(error) });
}

/** The error of a model server, without our own stack trace, which would not help. */
function errorText(error: unknown): unknown {
  if (!(error instanceof UpstreamError)) return error;
  const { message, cause } = error;
  return cause instanceof Error ? `${message}: ${cause.message}` : message;
}

/** Waits; rejects with the signal's reason as soon as that aborts. */
export async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, { signal }).catch(() => {});
  signal.throwIfAborted();
}
