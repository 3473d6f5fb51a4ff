/** What is measured: this gateway, and others as `rivals.json` describes them. */
import { z } from "zod";
import { startGateway } from "../tests/support/gateway/gateway.ts";
import type { LaunchedGateway } from "../tests/support/gateway/launched.ts";
import { freePort } from "../tests/support/servers/local_server.ts";
import {
  CACHE,
  installOnce,
  type RunningProcess,
  startProcess,
} from "../tests/support/process.ts";
import { startRedisServer } from "../tests/support/servers/redis_server.ts";
import { waitFor } from "../tests/support/wait_for.ts";
import { requestTo, runLoop, type Target } from "./load.ts";
import { lastLines, type Processes, withDescendants } from "./processes.ts";
import { OURS } from "./report.ts";

/** A gateway, or a model server, that is measured. */
export interface Contender extends Target, AsyncDisposable {
  /** Its processes now: they change when one is restarted. */
  processes: () => Processes;
}
/** This gateway, with a key. */
export interface OurGateway extends Contender {
  readonly gateway: LaunchedGateway;
  /** The secret value of a key with limits that are never reached. */
  readonly key: string;
}

const rivalSchema = z.strictObject({
  /** Ends in `-limits` if keys and limits are checked. */
  name: z.string(),
  /** Below the scratch folder; rivals with the same software share it. */
  folder: z.string(),
  /** A shell command, run once in the folder. */
  install: z.string().default("true"),
  /**
   * A shell command, run in the folder, with PORT, MODEL_URL (ends in `/v1`), BENCH
   * (this folder) and, if `redis` says so, REDIS_PORT in its environment.
   */
  command: z.string(),
  /** The port, if the command cannot be given one. */
  port: z.int().optional(),
  /** Sent with each request; `$MODEL_URL` is replaced. */
  headers: z.record(z.string(), z.string()).default({}),
  redis: z.boolean().default(false),
});

const INSTALL_MS_MAX = 10 * 60_000;
const START_MS_MAX = 120_000;
const BENCH = new URL(".", import.meta.url).pathname;
const SCRATCH = `${CACHE}/gateway-bench`;
/** Options of a key whose limits are counted, but never reached. */
export const KEY_LIMITS = [
  "--rpm=1000000",
  "--tpm=1000000000",
  "--tokens-per-day=1000000000000",
  "--concurrency=100000",
];

/** A gateway of somebody else, as the list of rivals describes it. */
export type Rival = z.infer<typeof rivalSchema>;

/**
 * Reads a list of rivals, of which only those named `only` are wanted; absent: all, and
 * none for `none`. Throws if it is not as {@link Rival} says, or has not all of these.
 */
export async function readRivals(
  file: string,
  only?: readonly string[],
): Promise<Rival[]> {
  const text = await Deno.readTextFile(file);
  const rivals = z.array(rivalSchema).parse(JSON.parse(text));
  if (only === undefined) return rivals;
  const names = [...rivals.map(({ name }) => name), NONE];
  const unknown = only.filter((name) => !names.includes(name));
  if (unknown.length > 0) {
    throw new Error(
      `Not in the list of others: ${unknown.join(", ")}. It has ${
        names.join(", ")
      }`,
    );
  }
  return rivals.filter(({ name }) => only.includes(name));
}

const NONE = "none";

/** The model server without a gateway: its cost, and that of the load client. */
export async function startModelServer(): Promise<Contender> {
  const command =
    `exec ${Deno.execPath()} run -q -N $BENCH/model_server.ts $PORT`;
  const direct = { name: "direct", folder: "direct", command };
  const server = await startRival(rivalSchema.parse(direct), "");
  const processes = () => ({ ...server.processes(), client: [Deno.pid] });
  return { ...server, processes };
}

/**
 * This gateway as `deno task up` starts it, with its own NATS and Redis, and a key with
 * limits. Without an address of a model server, `env` says where one is.
 */
export async function startOurs(
  modelUrl: string,
  { name = OURS, instances = 1, root, env, scopes }: {
    name?: string;
    root?: string;
    instances?: number;
    env?: Record<string, string>;
    /** What its key may do, as the command line takes it. */
    scopes?: string;
  } = {},
): Promise<OurGateway> {
  const gateway = await startGateway("launched", {
    ...root !== undefined && { root },
    edges: instances,
    workers: instances,
    env: {
      ...modelUrl !== "" && { UPSTREAM_BASE_URL: modelUrl },
      ...env,
    },
  });
  const rights = scopes === undefined ? [] : [`--scopes=${scopes}`];
  const { key } = await gateway.createKey(...KEY_LIMITS, ...rights);
  return {
    name,
    gateway,
    key,
    baseUrls: gateway.state.edge_urls.map((_, i) => gateway.baseUrl(i)),
    headers: { authorization: `Bearer ${key}` },
    processes: () => gateway.state.pids,
    [Symbol.asyncDispose]: () => gateway[Symbol.asyncDispose](),
  };
}

/**
 * Installs and starts a rival and sees that it answers. Throws why it cannot be had.
 */
export async function startRival(
  rival: Rival,
  modelUrl: string,
): Promise<Contender> {
  await using starting = new AsyncDisposableStack();
  const cwd = `${SCRATCH}/${rival.folder}`;
  const signal = AbortSignal.timeout(INSTALL_MS_MAX);
  await installOnce(rival.folder, rival.install, { cwd, signal });
  const port = rival.port ?? freePort();
  const redis = rival.redis ? starting.use(await startRedisServer()) : null;
  const env = {
    PORT: `${port}`,
    MODEL_URL: modelUrl,
    BENCH,
    REDIS_PORT: `${redis?.port}`,
  };
  const args = ["-c", rival.command];
  const shell = startProcess({ command: "sh", args, cwd, env });
  starting.defer(() => endAll(shell));
  const headers = JSON.stringify(rival.headers)
    .replaceAll("$MODEL_URL", modelUrl);
  const target: Target = {
    name: rival.name,
    baseUrls: [`http://127.0.0.1:${port}/v1`],
    headers: JSON.parse(headers),
  };
  const requests = [requestTo(target, 200)];
  await waitFor(async () => {
    if (!shell.isRunning) throw new Error(lastLines(shell.output()));
    const once = { connections: 1, seconds: 0, requests };
    return (await runLoop(target, once)).latenciesMs.length === 1;
  }, {
    what: () => `an answer: ${lastLines(shell.output())}`,
    timeoutMs: START_MS_MAX,
    intervalMs: 200,
  });
  const started = starting.move();
  return {
    ...target,
    processes: () => ({
      [rival.folder]: withDescendants(shell.pid),
      ...redis && { redis: [redis.pid()] },
    }),
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}

/** Ends what a shell started before itself, so that nothing is left behind. */
async function endAll(shell: RunningProcess): Promise<void> {
  const pids = shell.isRunning ? withDescendants(shell.pid) : [];
  for (const pid of pids.reverse()) {
    try {
      Deno.kill(pid, "SIGKILL");
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
  await shell.exited;
}
