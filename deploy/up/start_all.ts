import type { MonotonicNow, WallNow } from "@gateway/shared/process/clock";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import type { Cluster } from "./cluster.ts";
import {
  FIRST_KEY_DESCRIPTION,
  type FirstKey,
  provideFirstKey,
} from "./first_key.ts";
import type { Guardian } from "./guardian.ts";
import type { Host } from "./install.ts";
import type { UpOptions } from "./options.ts";
import type { Output } from "./output.ts";
import type { RunFiles } from "./run_dir.ts";
import {
  createKeyProgram,
  type ProgramContext,
  type ServiceScripts,
} from "./service_programs.ts";
import { type Services, startServices } from "./start_services.ts";
import { startStores, type StoreUrls } from "./start_stores.ts";
import type { UpState } from "./state_file.ts";
import type { StopRequest } from "./stop_signals.ts";
import { describeSummary, firstModel } from "./summary.ts";

/** What the launcher needs of the process it is in. */
export interface UpDeps {
  /** Root of the repository. */
  root: string;
  /** The running Deno, which also runs the services. */
  execPath: string;
  /** Of this process. */
  pid: number;
  env: Readonly<Record<string, string>>;
  host: Host;
  scripts: ServiceScripts;
  out: Output;
  stop: StopRequest;
  now: MonotonicNow;
  wallNow: WallNow;
}

/** One launcher at work. */
export interface Run {
  options: UpOptions;
  deps: UpDeps;
  files: RunFiles;
  cluster: Cluster;
  guardian: Guardian;
}

const PROGRESS_EVERY_MS = 5_000;

/** A cluster that is ready. */
export interface Started {
  stores: StoreUrls;
  services: Services;
  firstKey: FirstKey;
}

/**
 * Starts NATS and Redis, then all services and the first key at once. Resolves
 * when everything is ready; throws an {@link UpError} when something does not start.
 */
export async function startAll(run: Run): Promise<Started> {
  const { options, deps, cluster, guardian, files } = run;
  const { out, env, stop } = deps;
  const ticker = setInterval(() => {
    const names = cluster.waitingFor();
    if (names.length > 0) out.say(`  still waiting for ${names.join(", ")}`);
  }, PROGRESS_EVERY_MS);
  try {
    const stores = await startStores({
      host: deps.host,
      guardian,
      out,
      logPath: files.installLog,
      stopping: stop.requested,
      cluster,
      options,
      env,
    });
    const context: ProgramContext = {
      ...deps,
      natsUrl: stores.natsUrl,
      redisUrl: stores.redis.url,
      options,
    };
    out.say(describeServices(options));
    const keyCreated = provideFirstKey({
      dataDir: options.dataDir,
      redis: stores.redis,
      isPrivateRedis: stores.isPrivateRedis,
      create: createKeyProgram(context, FIRST_KEY_DESCRIPTION),
      guardian,
      stopping: stop.requested,
      wallNow: deps.wallNow,
    });
    let isSummarySaid = false;
    const services = startServices({
      cluster,
      context,
      onSetupUrl: (url) => {
        if (isSummarySaid) out.say(`Console link for the first owner: ${url}`);
      },
    });
    const [firstKey] = await Promise.all([keyCreated, services.ready]);
    isSummarySaid = true;
    return { stores, services, firstKey };
  } finally {
    clearInterval(ticker);
  }
}

function describeServices({ edges, workers }: UpOptions): string {
  const times = (count: number) => count === 1 ? "" : ` x ${count}`;
  return `Starting edge-auth${times(edges)}, chat-worker${times(workers)}` +
    " and key-admin";
}

/** The content of `up.json`. */
export function describeState(run: Run, started: Started): UpState {
  const { stores, services, firstKey } = started;
  const edgeUrls = services.edgeUrls();
  return {
    pid: run.deps.pid,
    edge_url: edgeUrls[0] ?? "",
    edge_urls: edgeUrls,
    console_url: services.consoleUrl,
    setup_url: services.setupUrl() ?? null,
    api_key: firstKey.key ?? null,
    nats_url: stores.natsUrl,
    redis_url: stores.redis.url,
    ops_urls: services.opsUrls(),
    pids: { nats: [], redis: [], ...run.cluster.pids() },
  };
}

/** Tells the operator where everything is. */
export async function saySummary(
  { options, deps, files }: Run,
  { services, firstKey }: Started,
  tookMs: number,
): Promise<void> {
  const edgeUrls = services.edgeUrls();
  const setupUrl = services.setupUrl();
  deps.out.say(describeSummary({
    edgeUrls,
    consoleUrl: services.consoleUrl,
    ...(setupUrl === undefined ? {} : { setupUrl }),
    ...(firstKey.key === undefined ? {} : { apiKey: firstKey.key }),
    ...(firstKey.note === undefined ? {} : { keyNote: firstKey.note }),
    model: options.quiet
      ? DEFAULT_MODEL_ID
      : await firstModel(edgeUrls[0] ?? "", firstKey.key),
    logsDir: files.logs,
    stateFile: files.state,
    seconds: tookMs / 1_000,
  }));
}
