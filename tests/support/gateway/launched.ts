/**
 * The whole product as an operator starts it: the launcher, private stores, every
 * service a process of its own, on free ports and in a directory of its own.
 */
import assert from "node:assert/strict";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { UpState } from "../../../deploy/up/state.ts";
import { firstKeyFile } from "../../../deploy/up/welcome.ts";
import { run } from "../../../services/key-admin/cli.ts";
import { postChat } from "../chat_request.ts";
import { makeTempDir, type RunningProcess, startProcess } from "../process.ts";
import { assertNoKeys } from "../recording_log.ts";
import { testRedisLink } from "../servers/redis_link.ts";
import { until, waitFor } from "../wait_for.ts";
import { type CreatedKey, makeKey, runKeys } from "./key_commands.ts";
import { simulates } from "./simulator.ts";

/** The launcher's description of a running gateway, with a first key. */
type LaunchedState = UpState & { api_key: string };

/** How {@link startLaunched} runs `deno task up`. */
export interface LaunchedOptions {
  /** Another checkout of this repository, with the same keys in Redis. */
  root?: string;
  /** 1 if left out. */
  edges?: number;
  /** Chat workers; 1 if left out. */
  workers?: number;
  /** Media workers, if a model needs them; 1 if left out. */
  mediaWorkers?: number;
  /** Added to the environment of every service. */
  env?: Record<string, string>;
  /**
   * Whether the launcher creates the first key, with a process that loads the command
   * line. By default the test does, in its own process.
   */
  createsKey?: boolean;
}

const ROOT = new URL("../../..", import.meta.url).pathname;
const START_TIMEOUT_MS = 60_000;
const REPLACED_MS = 20_000;
/** A first key that a Redis does not know: the launcher creates no other one. */
const FORGOTTEN_KEY = JSON.stringify({ key: "sk-forgotten" });
const ONE = { messages: simulates("1 token"), max_tokens: 1 };

/**
 * Starts the product and waits until it serves. When it ends, its logs must contain no
 * key.
 */
export async function startLaunched(
  options: LaunchedOptions,
): Promise<LaunchedGateway> {
  await using starting = new AsyncDisposableStack();
  const { path: directory } = starting.use(await makeTempDir());
  await Deno.mkdir(`${directory}/run/logs`, { recursive: true });
  const { createsKey = false, env = {} } = options;
  if (!createsKey) await forgetKey(`${directory}/data`, env);
  starting.defer(async () =>
    assertNoKeys(await readLogs(directory), "the logs of the services")
  );
  const launcher = startLauncher(directory, options);
  starting.defer(() => stopLauncher(directory, launcher));
  const state = await waitFor(() => readState(directory, launcher), {
    what: () => `the gateway to start:\n${launcher.output()}`,
    timeoutMs: START_TIMEOUT_MS,
    intervalMs: 50,
  });
  const { key } = createsKey
    ? { key: state.api_key }
    : await makeKey(variablesOf(state));
  return new LaunchedGateway(starting.move(), {
    directory,
    launcher,
    state: { ...state, api_key: key },
  });
}

/** The product as processes. */
export class LaunchedGateway implements AsyncDisposable {
  readonly #owned: AsyncDisposableStack;
  /** Links to its Redis, which end before it does. */
  readonly #links = new AsyncDisposableStack();
  readonly #directory: string;
  readonly #launcher: RunningProcess;
  #state: LaunchedState;

  constructor(owned: AsyncDisposableStack, { directory, launcher, state }: {
    directory: string;
    launcher: RunningProcess;
    state: LaunchedState;
  }) {
    this.#owned = owned;
    this.#directory = directory;
    this.#launcher = launcher;
    this.#state = state;
  }

  /** What the launcher wrote, as of the last {@link refresh}. */
  get state(): LaunchedState {
    return this.#state;
  }

  /** The base URL of an edge, as an SDK takes it. */
  baseUrl(edge = 0): string {
    return `${this.#state.edge_urls[edge] ?? ""}/v1`;
  }

  /** All that its services have logged. */
  logs(): Promise<string> {
    return readLogs(this.#directory);
  }

  /** Reads the state anew: pids change when a service was restarted. */
  async refresh(): Promise<LaunchedState> {
    const state = await readState(this.#directory, this.#launcher);
    const { api_key } = this.#state;
    if (state !== undefined) this.#state = { ...state, api_key };
    return this.#state;
  }

  /** Creates a key with these options of the command line. */
  createKey(...options: string[]): Promise<CreatedKey> {
    return makeKey(variablesOf(this.#state), ...options);
  }

  /** What `deno task keys … --json` prints. */
  keys(...args: string[]): Promise<string> {
    return runKeys(variablesOf(this.#state), ...args);
  }

  /** What a command of an area prints, such as `running stop req_…`. */
  command(area: string, ...args: string[]): Promise<string> {
    return run([area, ...args, "--json"], variablesOf(this.#state));
  }

  /** What `deno task owners …` prints. */
  owners(...args: string[]): Promise<string> {
    return run(["owners", ...args], variablesOf(this.#state));
  }

  /**
   * Sends a chat request to edge `edge`, or the first; it asks for one token where
   * `body` does not say otherwise.
   */
  ask(
    value: string,
    { edge, body, signal = null }: {
      edge?: number;
      body?: object;
      signal?: AbortSignal | null;
    } = {},
  ): Promise<Response> {
    return postChat(this.baseUrl(edge), value, {
      body: { ...ONE, ...body },
      signal,
    });
  }

  /** A link with all permissions to its Redis. */
  async openRedis(): Promise<RedisLink> {
    const link = testRedisLink({ url: this.#state.redis_url });
    this.#links.defer(() => link.close());
    await link.ready(START_TIMEOUT_MS);
    return link;
  }

  /** Waits until the first worker of a service runs `requests` requests. */
  async runs(
    service: string,
    requests: number,
    timeoutMs?: number,
  ): Promise<void> {
    await until(async () => {
      const [url] = (await this.refresh()).ops_urls[service] ?? [];
      const metrics = await (await fetch(`${url}/metrics`)).text();
      return metrics.includes(`\ngateway_worker_in_flight ${requests}\n`);
    }, timeoutMs);
  }

  /** Process `index` of a service, as of the state last read. */
  pid(service: string, index = 0): number {
    const { pids } = this.#state;
    return pids[service]?.[index] ?? assert.fail(JSON.stringify(pids));
  }

  /** Waits until another process of the service runs in the place of this one. */
  async isReplaced(service: string, pid: number): Promise<void> {
    const before = this.#state.pids[service]?.length;
    await until(async () => {
      const pids = (await this.refresh()).pids[service] ?? [];
      return pids.length === before && !pids.includes(pid);
    }, REPLACED_MS);
  }

  /** Stops it as an operator does, and checks its logs. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#links.disposeAsync();
    await this.#owned.disposeAsync();
  }
}

/** What the command line needs to find the stores. */
function variablesOf({ redis_url, nats_url, console_url }: UpState) {
  return {
    REDIS_URL: redis_url,
    NATS_URL: nats_url,
    PUBLIC_URL: console_url,
  };
}

/** Leaves a first key behind that no Redis knows. */
async function forgetKey(
  dataDir: string,
  { REDIS_URL }: Record<string, string>,
): Promise<void> {
  await Deno.mkdir(dataDir, { recursive: true, mode: 0o700 });
  await Deno.writeTextFile(firstKeyFile(dataDir, REDIS_URL), FORGOTTEN_KEY);
}

function startLauncher(
  directory: string,
  { root = ROOT, edges = 1, workers = 1, mediaWorkers = 1, env }:
    LaunchedOptions,
): RunningProcess {
  return startProcess({
    command: Deno.execPath(),
    args: [
      "task",
      "up",
      "--port=0",
      "--console-port=0",
      `--edges=${edges}`,
      `--workers=${workers}`,
      `--media-workers=${mediaWorkers}`,
      `--data-dir=${directory}/data`,
      `--run-dir=${directory}/run`,
    ],
    cwd: root,
    env: { NO_COLOR: "1", ...env },
  });
}

/** Returns nothing as long as the launcher has not written it. */
async function readState(
  directory: string,
  launcher: RunningProcess,
): Promise<LaunchedState | undefined> {
  if (!launcher.isRunning) {
    throw new Error(`The launcher ended early:\n${launcher.output()}`);
  }
  try {
    return JSON.parse(await Deno.readTextFile(`${directory}/run/up.json`));
  } catch {
    return undefined; // Not written yet.
  }
}

async function stopLauncher(
  directory: string,
  launcher: RunningProcess,
): Promise<void> {
  if (launcher.isRunning) {
    const state = await readState(directory, launcher);
    Deno.kill(state?.pid ?? launcher.pid, "SIGTERM");
  }
  await launcher.exited;
}

async function readLogs(directory: string): Promise<string> {
  const files = `${directory}/run/logs`;
  let text = "";
  for await (const { name } of Deno.readDir(files)) {
    text += await Deno.readTextFile(`${files}/${name}`);
  }
  return text;
}
