/** The service: connections, console, operations port, drain. */
import type { ModelCatalog } from "@gateway/shared/models/catalog";
import { BudgetDays } from "@gateway/shared/keys/budget_calendar";
import { createClientAddress } from "@gateway/shared/process/client_address";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { newInstanceId, randomBytes } from "@gateway/shared/process/ids";
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
import {
  observeOverrides,
  repeatOverrides,
  tellOverrides,
} from "./domain/models/override_teller.ts";
import type { StoredOverride } from "./domain/models/override_store.ts";
import { Notices, type NoticesOptions } from "./domain/notices/notices.ts";
import { followWorkers } from "./domain/models/worker_follower.ts";
import { linkPath } from "./domain/sign_in/links.ts";
import { OidcClient } from "./domain/sign_in/oidc.ts";
import { createPasswordHasher } from "./domain/sign_in/password.ts";
import { RunningRequests } from "./domain/running/running_requests.ts";
import { detectDurability } from "./domain/store/durability.ts";
import { connectRedis } from "./domain/store/redis.ts";
import { createStores } from "./domain/stores.ts";
import { createAskApi } from "./domain/try/edge.ts";
import { createConsole } from "./app.tsx";
import { readAssets } from "./web/assets.ts";
import type { ConsoleDeps } from "./web/context.ts";
import { SECURITY_HEADERS } from "./web/guards.ts";
import { createHandler, type ServeHandler } from "./web/server.ts";

const FIRST_CONNECT_MS = 30_000;
/** A page takes a second or two, unlike the answer of a model. */
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
  const stopNotices = startNotices(config, parts, tools);
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
  await announceSetUp(deps);
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
      await stopNotices();
      await Promise.all([stop(), redis.close(), writer.close()]);
    },
  };
}

/** What pages show of the configuration. */
function shownOf(
  { apiUrl, isSimulated, projectsCreatedBy, budgetZone }: Config,
) {
  return { apiUrl, isSimulated, projectsCreatedBy, budgetZone };
}

/** Follows the workers, and tells them and the edges what operators have changed. */
function followAndTell(
  { bus: access }: Config,
  { overrides, catalog }: Pick<ConsoleDeps, "overrides"> & {
    catalog: ModelCatalog;
  },
  { log, registry }: ServiceTools,
) {
  const workers = followWorkers({ access, catalog, log });
  const { bus } = workers;
  let held: readonly StoredOverride[] = [];
  observeOverrides(registry, () => held, wallNow);
  const stopRepeating = repeatOverrides({
    bus,
    overrides,
    log,
    onList(list) {
      held = list;
    },
  });
  const ids = { now: monotonicNow, newId: newInstanceId };
  return {
    workers,
    running: new RunningRequests({ bus, ...ids }),
    tellOverrides: () => tellOverrides({ bus, overrides }),
    async stop() {
      stopRepeating();
      await workers.stop();
    },
  };
}

/** Tells of budgets and keys that expire. Returns the function that ends it. */
function startNotices(
  { budgetZone, noticeTarget: target }: Config,
  parts: Pick<NoticesOptions, "redis" | "keys" | "people" | "now" | "catalog">,
  tools: ServiceTools,
): () => Promise<void> {
  const days = new BudgetDays(budgetZone);
  const notices = new Notices({ ...parts, ...tools, days, target });
  notices.start();
  return () => notices.stop();
}

/** Serves what the handler answers, once there is one. */
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

/** While the first owner cannot sign in, every start prints a new set-up link. */
async function announceSetUp(deps: ConsoleDeps): Promise<void> {
  const { owners, links, log, publicUrl } = deps;
  if (await owners.setUpAccount() !== null) return;
  const ownerId = await owners.first();
  const secret = await links.make({ kind: "set_up", ownerId });
  log.notice("setup_link", {
    url: new URL(linkPath(secret), publicUrl).href,
    message: "Sets up the console; works once, within 15 minutes",
  });
}

await runService({ name: "key-admin", readConfig, start });
