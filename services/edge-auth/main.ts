/** Wires the public API: Redis, bus, dispatcher, HTTP. */
import { setTimeout as delay } from "node:timers/promises";
import { createClientAddress } from "@gateway/shared/process/client_address";
import { connectBus } from "@gateway/shared/bus/link_nats";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { newInstanceId } from "@gateway/shared/process/ids";
import { ApiError } from "@gateway/shared/openai/error";
import type { Log } from "@gateway/shared/process/log";
import { serve } from "@gateway/shared/process/lifecycle/serve";
import { createRedisLink } from "@gateway/shared/redis/link";
import {
  type RunningService,
  runService,
  type ServiceTools,
} from "@gateway/shared/process/lifecycle/service";
import { INBOX_PREFIXES } from "@gateway/shared/process/service_variables";
import { createApp } from "./app.ts";
import { familyOf } from "@gateway/shared/models/kinds";
import { startCatalog } from "@gateway/shared/reload/list";
import { type EdgeConfig, readConfig } from "./config.ts";
import { Deadlines } from "@gateway/shared/process/deadlines";
import { BodyBudget } from "./http/body_budget.ts";
import { RefusedBodies } from "./http/read_body.ts";
import { ANY_ORIGIN } from "./http/responses.ts";
import { startServer } from "./http/server.ts";
import { KEPT_SCRIPTS } from "./kept/records.ts";
import { observeEdge } from "./metrics.ts";
import { LIMITER_PROBE } from "./limits/limiter.ts";
import { EDGE_SCRIPTS } from "./limits/scripts.ts";
import { VIDEO_SCRIPTS } from "./videos/jobs.ts";
import {
  type Connections,
  createParts,
  processTools,
  startBackground,
} from "./parts.ts";

/** After the grace period, streams have this long to end with an error event. */
const ABORT_MS = 1_000;
/** Redis may be started after the services. */
const START_MS = 30_000;

await runService({ name: "edge-auth", readConfig, start });

async function start(
  config: EdgeConfig,
  tools: ServiceTools,
): Promise<RunningService> {
  const { log, registry } = tools;
  warnOfOrigins(config, log);
  const connections = await connect(config, log);
  const { edgeId, bus, redis } = connections;
  const { catalog, reloading } = startCatalog(config.list, tools);
  const parts = createParts({ ...config, catalog }, connections, tools);
  const { dispatcher, limiter } = parts;
  const stopBackground = await startBackground(parts, { ...connections, log });
  const deadlines = new Deadlines(monotonicNow);
  let isDraining = false;
  // Redis and NATS are available, so proxies may send requests.
  const readyServer = openReadyPort(config);
  const server = await startServer({
    ...config,
    ...processTools(log),
    handler: createApp({
      ...config,
      ...processTools(log),
      ...parts,
      deadlines,
      bodyBudget: new BodyBudget(config),
      refusedBodies: new RefusedBodies(monotonicNow),
      wallNow,
      clientAddress: createClientAddress(config.trustedProxies),
      isDraining: () => isDraining,
      isRun: ({ id, kind }) =>
        dispatcher.workers.mayRun({ model: id, family: familyOf(kind) }),
    }),
    onError: (error) => log.error("request_fault", { error }),
  });
  server.stopping.addEventListener("abort", () =>
    dispatcher.cancelAll(
      "shutdown",
      new ApiError("server_shutdown", "The server is shutting down."),
    ));
  observeEdge(registry, { dispatcher, leases: limiter.leases });
  return {
    bus,
    redis: [redis],
    // It answers 503 then, with what clients need to try again.
    answersWithout: true,
    ready: { edgeId, port: server.port, readyPort: readyServer?.port },
    stop: async () => {
      // Requests of proxies that have not noticed yet still arrive and are served.
      isDraining = true;
      reloading.stop();
      await readyServer?.stop({ graceMs: 0, abortMs: 0 });
      await delay(config.drainLeadMs);
      await server.stop({ graceMs: config.drainMs, abortMs: ABORT_MS });
      await stopBackground();
      deadlines.close();
      await bus.drain();
      await redis.close();
    },
  };
}

function warnOfOrigins({ corsOrigins }: EdgeConfig, log: Log): void {
  if (!corsOrigins.includes(ANY_ORIGIN)) return;
  log.warn("any_origin_allowed", {
    message: "CORS_ORIGINS is *: every web page may call this service",
  });
}

/** Connects to Redis and NATS; waits for both. */
async function connect(config: EdgeConfig, log: Log): Promise<Connections> {
  const edgeId = newInstanceId();
  const redis = createRedisLink({
    ...processTools(log),
    address: config.redis,
    scripts: [
      ...new Set([...EDGE_SCRIPTS, ...VIDEO_SCRIPTS, ...KEPT_SCRIPTS]),
    ],
    probe: LIMITER_PROBE,
  });
  const bus = await connectBus({
    ...processTools(log),
    ...config.bus,
    inboxPrefix: INBOX_PREFIXES.edge,
    name: `edge-auth ${edgeId}`,
  });
  await redis.ready(START_MS);
  return { edgeId, redis, bus };
}

/**
 * A port rather than a path, because proxies try another edge on their own only when
 * they cannot connect.
 */
function openReadyPort({ hostname, readyPort: port }: EdgeConfig) {
  if (port === undefined) return undefined;
  const answer = () => new Response(null, { status: 204 });
  return serve({ hostname, port, handler: answer, onError: answer });
}
