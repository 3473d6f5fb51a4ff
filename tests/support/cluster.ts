/**
 * The whole product as an operator starts it: the launcher, private stores, every
 * service a process of its own, on free ports and in a directory of its own.
 */
import assert from "node:assert/strict";
import { UNLIMITED } from "@gateway/shared/keys/record";
import { wallNow } from "@gateway/shared/process/clock";
import { randomBytes } from "@gateway/shared/process/ids";
import { silentLog } from "@gateway/shared/process/log";
import { parseCommand } from "../../services/key-admin/cli/command_line.ts";
import { KEYS } from "../../services/key-admin/cli/keys.ts";
import { OWNERS } from "../../services/key-admin/cli/owners.ts";
import { connectRedis } from "../../services/key-admin/domain/store/redis.ts";
import { createStores } from "../../services/key-admin/domain/stores.ts";
import { startProcess } from "./process.ts";
import type { UpState } from "../../deploy/up/up.ts";
import { assertNoKeys } from "./recording_log.ts";
import { waitFor } from "./wait_for.ts";

/** The launcher's description of a running cluster, with a first key. */
export interface ClusterState extends UpState {
  api_key: string;
}

export interface ClusterOptions {
  /** Another checkout of this repository, with the same keys in Redis. */
  root?: string;
  edges?: number;
  workers?: number;
  /** Added to the environment of every service. */
  env?: Record<string, string>;
}

export type Cluster = Awaited<ReturnType<typeof startCluster>>;

const ROOT = new URL("../..", import.meta.url).pathname;
const START_TIMEOUT_MS = 60_000;

/** Starts a cluster and waits until it serves. */
export async function startCluster(options: ClusterOptions = {}) {
  const { root = ROOT } = options;
  const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
  const stateFile = `${directory}/run/up.json`;
  const launcher = startProcess({
    command: Deno.execPath(),
    args: [
      "task",
      "up",
      "--port=0",
      "--console-port=0",
      `--edges=${options.edges ?? 1}`,
      `--workers=${options.workers ?? 1}`,
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
      return JSON.parse(await Deno.readTextFile(stateFile));
    } catch {
      return undefined; // Not written yet.
    }
  };
  const end = async () => {
    if (launcher.isRunning) {
      const state = await readState();
      Deno.kill(state?.pid ?? launcher.pid, "SIGTERM");
    }
    await launcher.exited;
  };
  const remove = () => Deno.remove(directory, { recursive: true });
  let state: ClusterState;
  try {
    state = await waitFor(readState, {
      what: () => `the cluster to start:\n${launcher.output()}`,
      timeoutMs: START_TIMEOUT_MS,
      intervalMs: 50,
    });
  } catch (error) {
    await end();
    await remove();
    throw error;
  }
  return {
    get state() {
      return state;
    },
    /** Base URL of edge `index`, as an SDK takes it. */
    baseUrl: (index = 0) => `${state.edge_urls[index] ?? ""}/v1`,
    /** Everything the services logged. */
    logs: () => readLogs(`${directory}/run/logs`),
    /** What `deno task keys … --json` prints for the cluster. */
    keys: (...args: string[]) => runCommand(state, ["keys", ...args]),
    owners: (...args: string[]) => runCommand(state, ["owners", ...args]),
    /** Reads the state anew: pids change when a service was restarted. */
    refresh: async () => {
      state = await readState() ?? state;
      return state;
    },
    [Symbol.asyncDispose]: async () => {
      await end();
      const text = await readLogs(`${directory}/run/logs`);
      await remove();
      assertNoKeys(text, "the logs of the services");
    },
  };
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
export function pidOf(cluster: Cluster, service: string, index = 0): number {
  const pid = cluster.state.pids[service]?.[index];
  if (pid === undefined) throw new Error(JSON.stringify(cluster.state.pids));
  return pid;
}

async function readLogs(directory: string): Promise<string> {
  let text = "";
  for await (const entry of Deno.readDir(directory)) {
    text += await Deno.readTextFile(`${directory}/${entry.name}`);
  }
  return text;
}

/** Runs a command of `keys` or `owners`; services/key-admin/cli_test.ts has the processes. */
async function runCommand(state: ClusterState, args: string[]) {
  const command = parseCommand({ keys: KEYS, owners: OWNERS }, args);
  assert.ok(typeof command !== "string", "a command, not a help page");
  const address = { url: state.redis_url };
  const redis = await connectRedis({
    ...{ address, log: silentLog, waitMs: START_TIMEOUT_MS },
  });
  try {
    const defaultLimits = { key: UNLIMITED, owner: UNLIMITED };
    const now = wallNow;
    const { json } = await command.run({
      ...createStores({
        ...{ redis, writer: redis, randomBytes, now, defaultLimits },
      }),
      sendStop: () => assert.fail("no test stops requests by a command"),
      publicUrl: new URL(state.console_url),
      models: state.models,
      warn: (text) => assert.fail(text),
    });
    return JSON.stringify(json);
  } finally {
    await redis.close();
  }
}
