/** Makes the backends of every model: one pool each, with a log line per attempt. */
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { publicRequestId, randomBytes } from "@gateway/shared/process/ids";
import { randomBase62 } from "@gateway/shared/keys/key";
import type { Log } from "@gateway/shared/process/log";
import type {
  BackendConfig,
  Catalog,
  ModelConfig,
} from "@gateway/shared/models/catalog";
import type { Backend } from "./backend.ts";
import { createOpenAiBackend } from "./openai/backend.ts";
import type { AttemptReport } from "./pool/attempt.ts";
import { type BackendPool, createBackendPool } from "./pool/pool.ts";
import { sleep } from "./pool/sleep.ts";
import { UpstreamError } from "./upstream_error.ts";

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

/** The backend of each model by its id. */
export function createBackends(
  options: BackendsOptions,
): ReadonlyMap<string, BackendPool> {
  const backends = new Map<string, BackendPool>();
  for (const model of options.catalog.values()) {
    backends.set(model.id, createPool(model, options));
  }
  return backends;
}

function createPool(
  model: ModelConfig,
  options: BackendsOptions,
): BackendPool {
  return createBackendPool({
    model: model.id,
    backends: model.backends.map((config) => ({
      backend: createBackend(config, options),
      preference: config.preference,
      weight: config.weight,
    })),
    now: monotonicNow,
    random: Math.random,
    sleep,
    onAttempt: (report) => {
      options.onAttempt(model.id, report);
      logAttempt(options.log, model.id, report);
    },
  });
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
  else log.warn("backend_attempt_failed", { ...line, error: toldOf(error) });
}

/** What a model server did wrong is told in words: where we noticed says nothing. */
function toldOf(error: unknown): unknown {
  if (!(error instanceof UpstreamError)) return error;
  const { message, cause } = error;
  return cause instanceof Error ? `${message}: ${cause.message}` : message;
}

function createBackend(
  config: BackendConfig,
  { backendKeys }: BackendsOptions,
): Backend {
  return createOpenAiBackend({
    config,
    apiKey: config.apiKeyEnv === undefined
      ? null
      : backendKeys.get(config.apiKeyEnv) ?? null,
    now: monotonicNow,
    wallNow,
    newToolCallId: () => `call_${randomBase62(CALL_ID_CHARS, randomBytes)}`,
  });
}
