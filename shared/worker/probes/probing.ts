/** Probes of the backends of a worker, through the client of its requests. */
import type { BackendConfig, Catalog } from "../../models/catalog.ts";
import type { ModelKind } from "../../models/kinds.ts";
import { newRequestId } from "../../process/ids.ts";
import type { Log } from "../../process/log.ts";
import type { ModelServer } from "../../upstream/model_server.ts";
import type { BackendPool } from "../../upstream/pool.ts";
import { tinyOptions, tinyRequest } from "../../upstream/tiny_request.ts";
import { type ProbedPool, Prober, type ProberOptions } from "./prober.ts";
import { UpstreamError } from "../../upstream/http/errors.ts";

const MS_PER_SECOND = 1_000;
/** An answer to a tiny request is smaller; a list of models may be long. */
const ANSWER_BYTES_MAX = 16 * 1024 * 1024;

/** What {@link createProber} needs, besides clocks. */
export interface ProbingOptions
  extends Pick<ProberOptions, "proofs" | "now" | "random"> {
  pools: {
    models: ProberOptions["models"];
    get(model: string): BackendPool<ModelServer> | undefined;
  };
  catalog: Pick<Catalog, "get">;
  metrics: { probed(model: string, backend: string, outcome: string): void };
  log: Pick<Log, "warn" | "info">;
}

/** A prober that asks with the smallest request of the kind of each model. */
export function createProber(
  { pools, catalog, metrics, log, ...options }: ProbingOptions,
): Prober {
  return new Prober({
    ...options,
    models: () => pools.models(),
    poolOf(model) {
      const pool = pools.get(model);
      const kind = catalog.get(model)?.kind ?? "chat";
      return pool && probed(pool, kind);
    },
    onProbe(model, backend, { outcome, error, durationMs, isNew }) {
      metrics.probed(model, backend, outcome);
      if (!isNew) return;
      const line = { model, backend, durationMs: Math.round(durationMs) };
      if (outcome === "success") return log.info("probe_passed", line);
      log.warn("probe_failed", {
        ...line,
        error: error instanceof UpstreamError ? error.logText : error,
        message: "A model server does not answer a probe; requests go to " +
          "others, if there are any, until it does",
      });
    },
  });
}

function probed(
  pool: Pick<BackendPool<ModelServer>, "states" | "probe">,
  kind: ModelKind,
): ProbedPool {
  return {
    states: () => pool.states(),
    probe: (backend, signal) =>
      pool.probe(
        backend,
        { requestId: newRequestId(), signal },
        (server) => ask(server, kind, signal),
      ),
  };
}

/** How long a server has for its answer to a probe, never longer than for any. */
function timeoutMsOf(
  { probe, deadlines }: Pick<BackendConfig, "probe" | "deadlines">,
): number {
  const seconds = probe?.timeout_seconds ?? Infinity;
  return Math.min(seconds * MS_PER_SECOND, deadlines.total_ms);
}

async function ask(
  server: ModelServer,
  kind: ModelKind,
  signal: AbortSignal,
): Promise<void> {
  const request = tinyRequest(server.config, kind);
  const options = tinyOptions(server.config, request);
  await server.exchange({
    encode: server.encoder(request.path, options),
    body: request.body,
    context: { requestId: newRequestId(), signal },
    mustBeginSoon: false,
    totalMs: timeoutMsOf(server.config),
  }, async ({ connection }) => {
    connection.bytesLeft = ANSWER_BYTES_MAX;
    await connection.readText();
  });
}
