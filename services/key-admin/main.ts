/** Wires the console: connections, pages, operations port, drain. */
import { createClientAddress } from "@gateway/shared/process/client_address";
import { wallNow } from "@gateway/shared/process/clock";
import { randomBytes } from "@gateway/shared/process/ids";
import { startCatalog } from "@gateway/shared/reload/list";
import {
  type GracefulServer,
  serve,
} from "@gateway/shared/process/lifecycle/serve";
import type { Log } from "@gateway/shared/process/log";
import {
  type RunningService,
  runService,
  type ServiceTools,
} from "@gateway/shared/process/lifecycle/service";
import { type Config, readConfig } from "./config.ts";
import { createStopSender } from "./domain/keys/notice.ts";
import { OidcClient } from "./domain/sign_in/oidc.ts";
import { createPasswordHasher } from "./domain/sign_in/password.ts";
import { detectDurability } from "./domain/store/durability.ts";
import { connectRedis } from "./domain/store/redis.ts";
import { createStores } from "./domain/stores.ts";
import { createAskApi } from "./domain/try/edge.ts";
import { createConsole } from "./app.tsx";
import { readAssets } from "./web/assets.ts";
import type { ConsoleDeps } from "./web/context.ts";
import { SECURITY_HEADERS } from "./web/guards.ts";
import { createHandler, type ServeHandler } from "./web/server.ts";
import { announce, followAndTell, startWork } from "./background.ts";

const FIRST_CONNECT_MS = 30_000;
/** Enough for pages, which take a second or two, unlike answers of models. */
const DRAIN_MS_MAX = 10_000;
const ABORT_MS = 500;

async function start(
  config: Config,
  tools: ServiceTools,
): Promise<RunningService> {
  const { log, registry } = tools;
  const options = { address: config.redis, log, waitMs: FIRST_CONNECT_MS };
  const redis = await connectRedis(options);
  const writer = await connectRedis(options);
  // The public URL may contain the port, which is known only once the server listens.
  const handler = Promise.withResolvers<ServeHandler>();
  const server = listen(config, handler.promise, log);
  const { defaultLimits } = config;
  const { catalog, reloading } = startCatalog(config.list, tools);
  const stores = { redis, writer, randomBytes, now: wallNow, defaultLimits };
  const allStores = createStores(stores);
  const parts = { ...allStores, catalog };
  const { stop, ...telling } = followAndTell(config, parts, tools);
  const stopWork = startWork(config, parts, tools);
  const deps: ConsoleDeps = {
    ...parts,
    log,
    ...shownOf(config),
    ...telling,
    listMistakes: () => [
      ...reloading.state.mistakes,
      ...telling.workers.mistakes(),
    ],
    sendStop: createStopSender({ access: config.bus, writer, log }),
    hasher: await createPasswordHasher(),
    assets: await readAssets(),
    oidc: config.oidc === null ? null : new OidcClient(config.oidc),
    publicUrl: config.publicUrl ?? new URL(`http://127.0.0.1:${server.port}`),
    askApi: createAskApi(config.edgeUrl, log),
  };
  handler.resolve(
    createHandler(createConsole(deps), {
      clientAddress: createClientAddress(config.trustedProxies),
      log,
      registry,
    }),
  );
  const durability = await detectDurability(redis);
  if (durability === "none") log.error("not_durable", NOT_DURABLE);
  await announce(deps);
  return {
    redis: [redis, writer],
    ready: {
      port: server.port,
      durability,
      publicUrl: deps.publicUrl.origin,
    },
    stop: async () => {
      reloading.stop();
      const graceMs = Math.min(config.drainMs, DRAIN_MS_MAX);
      await server.stop({ graceMs, abortMs: ABORT_MS });
      await stopWork();
      await Promise.all([stop(), redis.close(), writer.close()]);
    },
  };
}

/** Returns the part of the configuration that pages show. */
function shownOf(
  { apiUrl, isSimulated, projectsCreatedBy, budgetZone }: Config,
) {
  return { apiUrl, isSimulated, projectsCreatedBy, budgetZone };
}

/** Listens at once, and answers requests when the handler is there. */
function listen(
  { hostname, port }: Config,
  handler: Promise<ServeHandler>,
  log: Log,
): GracefulServer {
  return serve({
    hostname,
    port,
    handler: async (request, info) => (await handler)(request, info),
    onError: (error) => {
      log.error("request_failed", { error });
      return new Response("Something went wrong on our side\n", FAILED);
    },
  });
}

const FAILED = {
  status: 500,
  headers: {
    ...SECURITY_HEADERS,
    "content-type": "text/plain; charset=utf-8",
    "cache-control": "no-store",
  },
};

const NOT_DURABLE = {
  message: "Changes of keys may be lost in a power failure",
  remedy:
    "Set appendonly yes, and allow the Redis user to set appendfsync, or set it to always",
};

await runService({ name: "key-admin", readConfig, start });
