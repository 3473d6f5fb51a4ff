import type { MonotonicNow } from "@gateway/shared/process/clock";
import { hideUserinfo } from "@gateway/shared/process/env";
import type { Cluster } from "./cluster.ts";
import { type FirstKey, provideFirstKey } from "./first_key.ts";
import { ensureServers, NATS_SOFTWARE, REDIS_SOFTWARE } from "./install.ts";
import type { UpOptions } from "./options.ts";
import type { Output } from "./output.ts";
import { findFreePorts } from "./ports.ts";
import {
  httpUrl,
  type ProgramContext,
  type ProgramName,
  type Scripts,
  serviceProgram,
} from "./service_programs.ts";
import type { StopRequest } from "./stop.ts";
import { findGivenStores, natsStore, redisStore } from "./stores.ts";
import type { ServiceEvent, ServiceName, Supervised } from "./supervise.ts";

/** What the launcher needs of the process it is in. */
export interface UpDeps {
  /** Root of the repository. */
  root: string;
  /** The running Deno, which also runs the services. */
  execPath: string;
  pid: number;
  env: Readonly<Record<string, string>>;
  /** Directories that are searched for servers. */
  dirs: readonly string[];
  isRoot: boolean;
  scripts: Scripts;
  out: Output;
  stop: StopRequest;
  now: MonotonicNow;
}

/** A cluster that is ready. */
export interface Started {
  firstKey: FirstKey;
  /** What `up.json` says of it now. */
  describe(): UpState;
}

/** `.run/up.json`: everything needed to call the cluster and to look inside. */
export interface UpState {
  /** Pid of the launcher: SIGTERM to it stops everything. */
  pid: number;
  /** Of the first edge, without a path: `http://127.0.0.1:8080`. */
  edge_url: string;
  edge_urls: string[];
  console_url: string;
  /** One-time link that creates the first owner; null when there is one. */
  setup_url: string | null;
  /** Null when there is no first key that works. */
  api_key: string | null;
  nats_url: string;
  redis_url: string;
  /** Health, readiness and metrics, by service. */
  ops_urls: { [service: string]: string[] };
  /** By service; empty for a server that is not ours. */
  pids: { [service: string]: number[] };
}

/** The first start on a fresh machine downloads packages. */
const READY_MS = 60_000;
const PROGRESS_EVERY_MS = 5_000;
const LOOPBACK = "127.0.0.1";
const SIMULATOR_WARNING =
  "No model server is given: a simulator answers with canned text. " +
  "Put a model behind the gateway with UPSTREAM_BASE_URL or --models";

/**
 * Starts NATS and Redis, then all services and the first key at once. Resolves
 * when everything is ready; throws an {@link UpError} when something does not start.
 */
export async function startAll(
  cluster: Cluster,
  options: UpOptions,
  deps: UpDeps,
): Promise<Started> {
  const ticker = setInterval(() => {
    const names = cluster.units.filter((unit) => !unit.ready())
      .map(({ unit }) => unit.name);
    if (names.length > 0) {
      deps.out.say(`  still waiting for ${names.join(", ")}`);
    }
  }, PROGRESS_EVERY_MS);
  try {
    return await startServices(cluster, options, deps);
  } finally {
    clearInterval(ticker);
  }
}

async function startServices(
  cluster: Cluster,
  options: UpOptions,
  deps: UpDeps,
): Promise<Started> {
  const { out, env, stop } = deps;
  const stores = await startStores(cluster, options, deps);
  const ports = findFreePorts(3, options.host);
  // Chosen here: the console shows the first edge's port, and is linked to by its own.
  const edgePort = options.port || (ports[0] ?? 0);
  const consolePort = options.consolePort || (ports[1] ?? 0);
  const simulatorPort = ports[2] ?? 0;
  const hasModels = options.modelsFile !== undefined ||
    Boolean(env.UPSTREAM_BASE_URL || env.MODEL_SIMULATOR_URL);
  const context: ProgramContext = {
    ...deps,
    ...stores,
    options,
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

  let setupUrl: string | undefined;
  let isReady = false;
  const onAdminEvent = ({ event, url }: ServiceEvent) => {
    if (event !== "setup_link" || typeof url !== "string") return;
    setupUrl = url;
    if (isReady) out.say(`Console link for the first owner: ${url}`);
  };
  const start = (
    service: Exclude<ProgramName, "keys">,
    nth: number,
    variables: () => Record<string, string>,
  ) =>
    cluster.start({
      name: nth === 0 ? service : `${service}-${nth + 1}`,
      service,
      program: () => serviceProgram(context, service, variables()),
      readyMs: READY_MS,
    }, service === "key-admin" ? onAdminEvent : undefined);

  const keyCreated = provideFirstKey({
    dataDir: options.dataDir,
    redisUrl: stores.isPrivateRedis ? undefined : stores.redisUrl,
    keys: (args) => serviceProgram(context, "keys", {}, ["keys", ...args]),
    stopping: stop.requested,
  });
  if (!hasModels) {
    start("model-simulator", 0, () => ({
      HOST: LOOPBACK,
      PORT: String(simulatorPort),
    }));
  }
  const consoleUrl = httpUrl(options.host, consolePort);
  start("key-admin", 0, () => ({
    HOST: options.host,
    PORT: String(consolePort),
    PUBLIC_URL: env.PUBLIC_URL ?? consoleUrl,
    API_URL: env.API_URL ?? `${httpUrl(options.host, edgePort)}/v1`,
  }));
  const edges = Array.from({ length: options.edges }, (_, i): Supervised => {
    const edge = start("edge-auth", i, () => ({
      HOST: options.host,
      // Clients know the port, so a restart must come back on it.
      PORT: String(edge.ready()?.port ?? (i === 0 ? edgePort : 0)),
    }));
    return edge;
  });
  for (let i = 0; i < options.workers; i++) start("chat-worker", i, () => ({}));
  const [firstKey] = await Promise.all([
    keyCreated,
    ...cluster.units.map(({ firstReady }) => firstReady),
  ]);
  isReady = true;
  return {
    firstKey,
    describe() {
      const edgeUrls = edges.map((edge) =>
        httpUrl(options.host, edge.ready()?.port ?? 0)
      );
      const pids: UpState["pids"] = { nats: [], redis: [] };
      const opsUrls: UpState["ops_urls"] = {};
      for (const { unit: { service }, pid, ready } of cluster.units) {
        (pids[service] ??= []).push(...[pid() ?? []].flat());
        const opsPort = ready()?.opsPort ?? 0;
        if (opsPort === 0) continue;
        (opsUrls[service] ??= []).push(httpUrl(LOOPBACK, opsPort));
      }
      return {
        pid: deps.pid,
        edge_url: edgeUrls[0] ?? "",
        edge_urls: edgeUrls,
        console_url: consoleUrl,
        setup_url: setupUrl ?? null,
        api_key: firstKey.key ?? null,
        nats_url: stores.natsUrl,
        redis_url: stores.redisUrl,
        ops_urls: opsUrls,
        pids,
      };
    },
  };
}

interface Stores {
  natsUrl: string;
  redisUrl: string;
  isPrivateRedis: boolean;
}

/** Starts private servers beside those that `NATS_URL` and `REDIS_URL` name. */
async function startStores(
  cluster: Cluster,
  options: UpOptions,
  deps: UpDeps,
): Promise<Stores> {
  const { env, out, stop } = deps;
  const { natsUrl, redisUrl } = await findGivenStores(env);
  const wanted = [
    ...natsUrl === undefined ? [NATS_SOFTWARE] : [],
    ...redisUrl === undefined ? [REDIS_SOFTWARE] : [],
  ];
  const stopping = stop.requested;
  const paths = await ensureServers(wanted, { ...deps, stopping });
  if (wanted.length > 0) {
    out.say(`Starting ${wanted.map(({ name }) => name).join(" and ")}`);
  }
  if (natsUrl) out.say(`Using NATS at ${hideUserinfo(natsUrl)}`);
  if (redisUrl) out.say(`Using Redis at ${hideUserinfo(redisUrl)}`);
  const own = await Promise.all(
    wanted.map((software, i) =>
      (software === NATS_SOFTWARE ? natsStore : redisStore)(
        paths[i] ?? "",
        options,
        env,
      )
    ),
  );
  const urls = new Map<ServiceName, string>();
  await Promise.all(own.map(({ unit, url }) => {
    urls.set(unit.service, url);
    return cluster.start(unit).firstReady;
  }));
  return {
    natsUrl: natsUrl ?? urls.get("nats") ?? "",
    redisUrl: redisUrl ?? urls.get("redis") ?? "",
    isPrivateRedis: redisUrl === undefined,
  };
}
