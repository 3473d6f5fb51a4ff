import { hideUserinfo } from "@gateway/shared/process/env";
import type { Cluster } from "./cluster.ts";
import { checkFirstKey, provideFirstKey } from "./first_key.ts";
import { ensureServers, programDirs, type ServerName } from "./install.ts";
import type { UpOptions } from "./options.ts";
import { findFreePorts } from "./ports.ts";
import {
  httpUrl,
  type ProgramContext,
  type ProgramName,
  serviceProgram,
} from "./services.ts";
import { findGivenStore, natsStore, redisStore } from "./stores.ts";
import type { ServiceEvent, Supervised } from "./supervise.ts";
import { EXIT, type Output, UpError } from "./terminal.ts";

/** The environment of the launcher, which tests replace. */
export interface UpDeps extends Pick<ProgramContext, "root" | "scriptOf"> {
  env: Readonly<Record<string, string>>;
  out: Output;
  /** Aborts when the launcher has to stop. */
  stopping: AbortSignal;
}

/** `.run/up.json`: everything needed to call the cluster and to inspect it. */
export interface UpState {
  /** Pid of the launcher: SIGTERM to it stops everything. */
  pid: number;
  /** Of the first edge, without a path: `http://127.0.0.1:8080`. */
  edge_url: string;
  edge_urls: string[];
  console_url: string;
  /** One-time link that creates the first owner; null when there is one. */
  setup_url: string | null;
  /** Null without a first key that works. */
  api_key: string | null;
  nats_url: string;
  redis_url: string;
  /** Health, readiness and metrics, by service. */
  ops_urls: { [service: string]: string[] };
  /** By service; empty for a server that the launcher did not start. */
  pids: { [service: string]: number[] };
}

const LOOPBACK = "127.0.0.1";
/** How long services may fail to reach a given NATS or Redis before the start fails. */
const GIVEN_STORE_MS = 5_000;
const SIMULATOR_WARNING =
  "No model server is configured: the simulator answers with canned text. " +
  "Use UPSTREAM_BASE_URL or --models to serve a real model";

/**
 * Starts NATS and Redis, then all services at once, and creates the first key.
 * Resolves when everything is ready, with a function that returns the content of
 * `up.json`; throws an {@link UpError} when something does not start.
 */
export async function startAll(
  cluster: Cluster,
  options: UpOptions,
  deps: UpDeps,
) {
  const { out, env, stopping } = deps;
  const { host } = options;
  const { natsUrl, redisUrl, givenNatsUrl, givenRedisUrl } = await startStores(
    cluster,
    options,
    deps,
  );
  const ports = findFreePorts(3, host);
  // Chosen here because the console needs both URLs.
  const edgePort = options.port || (ports[0] ?? 0);
  const consolePort = options.consolePort || (ports[1] ?? 0);
  const simulatorPort = ports[2] ?? 0;
  const consoleUrl = httpUrl(host, consolePort);
  const hasModels = Boolean(
    env.MODELS_FILE || env.UPSTREAM_BASE_URL || env.MODEL_SIMULATOR_URL,
  );
  const context: ProgramContext = {
    ...deps,
    natsUrl,
    redisUrl,
    ...hasModels
      ? {}
      : { simulatorUrl: `${httpUrl(LOOPBACK, simulatorPort)}/v1` },
  };
  const times = (count: number) => count === 1 ? "" : ` x ${count}`;
  out.say(
    `Starting edge-auth${times(options.edges)}, ` +
      `chat-worker${times(options.workers)} and key-admin`,
  );
  if (!hasModels) out.warn(SIMULATOR_WARNING);

  const unreachable = Promise.withResolvers<never>();
  unreachable.promise.catch(() => {});
  const start = (
    service: Exclude<ProgramName, "keys">,
    nth: number,
    variables: () => Record<string, string>,
    onEvent?: (event: ServiceEvent) => void,
  ) => {
    const unit = cluster.start({
      name: nth === 0 ? service : `${service}-${nth + 1}`,
      service,
      program: () => serviceProgram(context, service, variables()),
    }, (event) => {
      onEvent?.(event);
      const problem = describeUnreachable(event, givenNatsUrl, givenRedisUrl);
      if (problem === undefined) return;
      setTimeout(() => {
        if (!unit.ready) unreachable.reject(new UpError(problem, EXIT.config));
      }, GIVEN_STORE_MS);
    });
    return unit;
  };

  const create = ["keys", "create", "--description", "First key", "--json"];
  const keyCreated = provideFirstKey({
    dataDir: options.dataDir,
    givenRedisUrl,
    create: serviceProgram(context, "keys", {}, create),
    stopping,
  });
  if (!hasModels) {
    const variables = { HOST: LOOPBACK, PORT: String(simulatorPort) };
    start("model-simulator", 0, () => variables);
  }
  let setupUrl: string | null = null;
  start("key-admin", 0, () => ({
    HOST: host,
    PORT: String(consolePort),
    PUBLIC_URL: env.PUBLIC_URL ?? consoleUrl,
    API_URL: env.API_URL ?? `${httpUrl(host, edgePort)}/v1`,
  }), ({ event, url }) => {
    if (event !== "setup_link") return;
    setupUrl = String(url);
    if (cluster.isReady) {
      out.say(`Console link for the first owner: ${setupUrl}`);
    }
  });
  const edges = Array.from({ length: options.edges }, (_, i): Supervised => {
    const edge = start("edge-auth", i, () => ({
      HOST: host,
      // Clients know the port, so a restart must use it again.
      PORT: String(edge.ready?.port ?? (i === 0 ? edgePort : 0)),
    }));
    return edge;
  });
  for (let i = 0; i < options.workers; i++) start("chat-worker", i, () => ({}));
  const allReady = Promise.all([
    keyCreated,
    ...cluster.units.map(({ firstReady }) => firstReady),
  ]);
  const [createdKey] = await Promise.race([allReady, unreachable.promise]);
  const firstEdgeUrl = httpUrl(host, edges[0]?.ready?.port ?? 0);
  const firstKey = await checkFirstKey(firstEdgeUrl, createdKey);

  const describe = (): UpState => {
    const edgeUrls = edges.map(({ ready }) => httpUrl(host, ready?.port ?? 0));
    const pids: UpState["pids"] = { nats: [], redis: [] };
    const opsUrls: UpState["ops_urls"] = {};
    for (const { unit: { service }, pid, ready } of cluster.units) {
      (pids[service] ??= []).push(...[pid ?? []].flat());
      if (!ready?.opsPort) continue;
      (opsUrls[service] ??= []).push(httpUrl(LOOPBACK, ready.opsPort));
    }
    return {
      pid: Deno.pid,
      edge_url: edgeUrls[0] ?? "",
      edge_urls: edgeUrls,
      console_url: consoleUrl,
      setup_url: setupUrl,
      api_key: firstKey.key ?? null,
      nats_url: natsUrl,
      redis_url: redisUrl,
      ops_urls: opsUrls,
      pids,
    };
  };
  return { firstKey, describe };
}

/** Starts a private server for each that `NATS_URL` and `REDIS_URL` do not name. */
async function startStores(
  cluster: Cluster,
  options: UpOptions,
  { env, out, stopping }: UpDeps,
) {
  const givenNatsUrl = await findGivenStore("NATS_URL", env);
  const givenRedisUrl = await findGivenStore("REDIS_URL", env);
  const wanted: ServerName[] = [
    ...givenNatsUrl === undefined ? ["nats-server" as const] : [],
    ...givenRedisUrl === undefined ? ["redis-server" as const] : [],
  ];
  const paths = await ensureServers(wanted, {
    dirs: programDirs(env.PATH),
    isRoot: Deno.uid() === 0,
    out,
    stopping,
  });
  if (wanted.length > 0) {
    out.say(`Starting ${wanted.join(" and ")}`);
  }
  const urls = await Promise.all(wanted.map(async (name, i) => {
    const prepare = name === "nats-server" ? natsStore : redisStore;
    const store = await prepare(paths[i] ?? "", options, env);
    await cluster.start(store).firstReady;
    return store.url;
  }));
  for (const url of [givenNatsUrl, givenRedisUrl]) {
    if (url !== undefined) out.say(`Using ${hideUserinfo(url)}`);
  }
  return {
    natsUrl: givenNatsUrl ?? urls[0] ?? "",
    redisUrl: givenRedisUrl ?? urls.at(-1) ?? "",
    ...{ givenNatsUrl, givenRedisUrl },
  };
}

/** The error to show if a service reports that it cannot use a given server. */
function describeUnreachable(
  { event, to, error, cause }: ServiceEvent,
  natsUrl: string | undefined,
  redisUrl: string | undefined,
): string | undefined {
  if (event === "bus_not_reached" && natsUrl !== undefined) {
    return `Cannot use NATS at ${hideUserinfo(natsUrl)} (NATS_URL): ${error}`;
  }
  if (event === "redis_state" && to === "offline" && redisUrl !== undefined) {
    return `Cannot use Redis at ${hideUserinfo(redisUrl)} (REDIS_URL): ${
      Object(cause).message
    }`;
  }
  return undefined;
}
