// The whole product as an operator starts it: the launcher, private stores, every
// service a process of its own, on free ports and in a directory of its own.
import assert from "node:assert/strict";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { UpState } from "../../deploy/up/up.ts";
import { run } from "../../services/key-admin/cli.ts";
import { postChat } from "./chat_request.ts";
import { owning, startProcess } from "./process.ts";
import { assertNoKeys } from "./recording_log.ts";
import { testRedisLink } from "./redis_link.ts";
import { makeKey, runKeys } from "./service_processes.ts";
import { waitFor } from "./wait_for.ts";

/** The launcher's description of a running cluster, with a first key. */
type ClusterState = UpState & { api_key: string };

export type Cluster = Awaited<ReturnType<typeof startCluster>>;

const ROOT = new URL("../..", import.meta.url).pathname;
const START_TIMEOUT_MS = 60_000;

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
  const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
  starting.defer(() => Deno.remove(directory, { recursive: true }));
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
      ...["task", "up", "--port=0", "--console-port=0"],
      ...[`--edges=${edges}`, `--workers=${workers}`],
      ...[`--data-dir=${directory}/data`, `--run-dir=${directory}/run`],
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
  const variables = () => ({
    ...{ REDIS_URL: state.redis_url, NATS_URL: state.nats_url },
    PUBLIC_URL: state.console_url,
  });
  return owning(starting, {
    get state() {
      return state;
    },
    /** Base URL of edge `index`, as an SDK takes it. */
    baseUrl: (index = 0) => `${state.edge_urls[index] ?? ""}/v1`,
    logs,
    createKey: (...options: string[]) => makeKey(variables(), ...options),
    /** What `deno task keys … --json` prints for the cluster. */
    keys: (...args: string[]) => runKeys(variables(), ...args),
    owners: (...args: string[]) => run(["owners", ...args], variables()),
    /** Reads the state anew: pids change when a service was restarted. */
    refresh: async () => {
      state = await readState() ?? state;
      return state;
    },
  });
}

/** Waits until another process of the service runs in the place of this one. */
export async function isReplaced(
  cluster: Cluster,
  service: string,
  pid: number,
): Promise<void> {
  const before = cluster.state.pids[service]?.length;
  await waitFor(async () => {
    const pids = (await cluster.refresh()).pids[service] ?? [];
    return pids.length === before && !pids.includes(pid);
  }, { what: `${service} ${pid} to be replaced`, timeoutMs: 20_000 });
}

/** Process `index` of a service, as of the state last read. */
export function pidOf({ state }: Cluster, service: string, index = 0): number {
  return state.pids[service]?.[index] ??
    assert.fail(JSON.stringify(state.pids));
}

const say = (content: string) => [{ role: "user", content }];
/** A stream that does not end by itself in the time of a test. */
export const LONG = {
  stream: true,
  max_tokens: 10_000,
  messages: say("[simulator: 10000 tokens] [simulator: 20 tokens per second]"),
};

/** Sends a chat request to edge number `edge`; it asks for one token where `body` does not say otherwise. */
export function askCluster(
  cluster: Cluster,
  value: string,
  edge: number,
  body: object = {},
  signal: AbortSignal | null = null,
): Promise<Response> {
  const one = { messages: say("[simulator: 1 token]"), max_tokens: 1 };
  const asked = { ...one, ...body };
  return postChat(cluster.baseUrl(edge), value, asked, { signal });
}

/** A link with all permissions to the Redis of a cluster. */
export async function openRedis({ state }: Cluster): Promise<RedisLink> {
  const link = testRedisLink({ url: state.redis_url });
  await link.ready(START_TIMEOUT_MS);
  return link;
}
