// The whole product as an operator starts it: the launcher, private stores, every
// service a process of its own, on free ports and in a directory of its own.
import assert from "node:assert/strict";
import type { UpState } from "../../deploy/up/main.ts";
import { run } from "../../services/key-admin/cli.ts";
import { postChat } from "./chat_request.ts";
import { makeTempDir, owning, startProcess } from "./process.ts";
import { assertNoKeys } from "./recording_log.ts";
import { testRedisLink } from "./redis_link.ts";
import { makeKey, runKeys } from "./service_processes.ts";
import { until, waitFor } from "./wait_for.ts";

/** The launcher's description of a running cluster, with a first key. */
type ClusterState = UpState & { api_key: string };

export type Cluster = Awaited<ReturnType<typeof startCluster>>;

const ROOT = new URL("../..", import.meta.url).pathname;
const START_TIMEOUT_MS = 60_000;
const REPLACED_MS = 20_000;

export async function startCluster(options: {
  /** Another checkout of this repository, with the same keys in Redis. */
  root?: string;
  edges?: number;
  workers?: number;
  /** Added to the environment of every service. */
  env?: Record<string, string>;
} = {}) {
  const { root = ROOT, edges = 1, workers = 1 } = options;
  await using starting = new AsyncDisposableStack();
  const { path: directory } = starting.use(await makeTempDir());
  const logFiles = `${directory}/run/logs`;
  await Deno.mkdir(logFiles, { recursive: true });
  const logs = async () => {
    let text = "";
    for await (const { name } of Deno.readDir(logFiles)) {
      text += await Deno.readTextFile(`${logFiles}/${name}`);
    }
    return text;
  };
  starting.defer(async () =>
    assertNoKeys(await logs(), "the logs of the services")
  );
  const launcher = startProcess({
    command: Deno.execPath(),
    args: [
      "task",
      "up",
      "--port=0",
      "--console-port=0",
      `--edges=${edges}`,
      `--workers=${workers}`,
      `--data-dir=${directory}/data`,
      `--run-dir=${directory}/run`,
    ],
    cwd: root,
    env: { NO_COLOR: "1", ...options.env },
  });
  const readState = async (): Promise<ClusterState | undefined> => {
    if (!launcher.isRunning) {
      throw new Error(`The launcher ended early:\n${launcher.output()}`);
    }
    try {
      return JSON.parse(await Deno.readTextFile(`${directory}/run/up.json`));
    } catch {
      return undefined; // Not written yet.
    }
  };
  starting.defer(async () => {
    if (launcher.isRunning) {
      const state = await readState();
      Deno.kill(state?.pid ?? launcher.pid, "SIGTERM");
    }
    await launcher.exited;
  });
  let state = await waitFor(readState, {
    what: () => `the cluster to start:\n${launcher.output()}`,
    timeoutMs: START_TIMEOUT_MS,
    intervalMs: 50,
  });
  const links = starting.use(new AsyncDisposableStack());
  const env = () => ({
    REDIS_URL: state.redis_url,
    NATS_URL: state.nats_url,
    PUBLIC_URL: state.console_url,
  });
  /** Reads the state anew: pids change when a service was restarted. */
  const refresh = async () => state = await readState() ?? state;
  /** Base URL of edge `index`, as an SDK takes it. */
  const baseUrl = (index = 0) => `${state.edge_urls[index] ?? ""}/v1`;
  return owning(starting, {
    get state() {
      return state;
    },
    baseUrl,
    logs,
    refresh,
    createKey: (...options: string[]) => makeKey(env(), ...options),
    /** What `deno task keys … --json` prints for the cluster. */
    keys: (...args: string[]) => runKeys(env(), ...args),
    owners: (...args: string[]) => run(["owners", ...args], env()),
    /**
     * Sends a chat request to an edge; it asks for one token where `body` does not say
     * otherwise.
     */
    ask: (
      value: string,
      edge: number,
      body: object = {},
      signal: AbortSignal | null = null,
    ) => postChat(baseUrl(edge), value, { ...ONE, ...body }, { signal }),
    /** A link with all permissions to its Redis. */
    openRedis: async () => {
      const link = testRedisLink({ url: state.redis_url });
      links.defer(() => link.close());
      await link.ready(START_TIMEOUT_MS);
      return link;
    },
    /** Waits until the first worker of a service runs so many requests. */
    runs: (service: string, requests: number, timeoutMs?: number) =>
      until(async () => {
        const [url] = (await refresh()).ops_urls[service] ?? [];
        const metrics = await (await fetch(`${url}/metrics`)).text();
        return metrics.includes(`\ngateway_worker_in_flight ${requests}\n`);
      }, timeoutMs),
    /** Process `index` of a service, as of the state last read. */
    pid: (service: string, index = 0) =>
      state.pids[service]?.[index] ?? assert.fail(JSON.stringify(state.pids)),
    /** Waits until another process of the service runs in the place of this one. */
    isReplaced: async (service: string, pid: number) => {
      const before = state.pids[service]?.length;
      await until(async () => {
        const pids = (await refresh()).pids[service] ?? [];
        return pids.length === before && !pids.includes(pid);
      }, REPLACED_MS);
    },
  });
}

/** The messages of a request that tells the simulator what to do. */
export const simulates = (controls: string) => [
  { role: "user" as const, content: `[simulator: ${controls}]` },
];
const ONE = { messages: simulates("1 token"), max_tokens: 1 };
/** A stream that does not end by itself in the time of a test. */
export const LONG = {
  stream: true,
  max_tokens: 10_000,
  messages: simulates("10000 tokens, 20 tokens per second"),
};
