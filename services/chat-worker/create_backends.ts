/** Makes the backends of every model: one pool each, with a log line per attempt. */
import { randomBase62 } from "@gateway/shared/keys/key";
import type { BackendConfig, Catalog } from "@gateway/shared/models/catalog";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { publicRequestId, randomBytes } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import { UpstreamError } from "./backends/errors.ts";
import { OpenAiBackend } from "./backends/openai.ts";
import { type AttemptReport, BackendPool } from "./backends/pool.ts";

export interface BackendsOptions {
  catalog: Catalog;
  /** Keys of model servers by the name of the variable that holds them. */
  backendKeys: ReadonlyMap<string, string>;
  log: Log;
  /** For metrics. Must not throw. */
  onAttempt: (model: string, report: AttemptReport) => void;
}

const CALL_ID_CHARS = 24;
/** Nothing is wrong with a backend that refuses a bad request. */
const QUIET_OUTCOMES: ReadonlySet<string> = new Set([
  "success",
  "aborted",
  "request",
]);

/** The backends of each model by its id. */
export function createBackends(
  { catalog, backendKeys, log, onAttempt }: BackendsOptions,
): ReadonlyMap<string, BackendPool> {
  const createBackend = (publicModel: string, config: BackendConfig) =>
    new OpenAiBackend({
      config,
      publicModel,
      apiKey: backendKeys.get(config.apiKeyEnv ?? "") ?? null,
      now: monotonicNow,
      wallNow,
      newToolCallId: () => `call_${randomBase62(CALL_ID_CHARS, randomBytes)}`,
    });
  return new Map(
    [...catalog.values()].map(({ id, backends }) => [
      id,
      new BackendPool({
        backends: backends.map((config) => createBackend(id, config)),
        now: monotonicNow,
        random: Math.random,
        sleep,
        onAttempt: (report) => {
          onAttempt(id, report);
          logAttempt(log, id, report);
        },
      }),
    ]),
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

/** A model server's fault in words: our own stack trace would say nothing. */
function errorText(error: unknown): unknown {
  if (!(error instanceof UpstreamError)) return error;
  const { message, cause } = error;
  return cause instanceof Error ? `${message}: ${cause.message}` : message;
}

/** Waits on the process's timers, until the signal aborts. */
export async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => resolve(), { once: true });
  await promise;
  clearTimeout(timer);
  signal.throwIfAborted();
}
