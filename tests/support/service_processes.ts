/** Single services as processes, configured by their environment. */
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import type { SeenRequest } from "../../services/model-simulator/serving/answer.ts";
import type { ServiceName } from "../../deploy/up/plan.ts";
import { run } from "../../services/key-admin/cli.ts";
import { serveSimulator } from "../../services/model-simulator/simulator.ts";
import { owning, startProcess } from "./process.ts";
import { until, waitFor } from "./wait_for.ts";
import { postChat } from "./chat_request.ts";

const cwd = fileURLToPath(new URL("../..", import.meta.url));
const START_MS = 30_000;
const SERVED_MS = 30_000;
const RUN = [
  "run",
  "--no-check",
  "--allow-net",
  "--allow-env",
  "--allow-read",
  "--allow-sys",
  "--allow-ffi",
];
/** For services that must be told of a model server and never ask it. */
const NO_MODEL_SERVER = { MODEL_SIMULATOR_URL: "http://127.0.0.1:9/v1" };

export type ServiceEnv = Record<string, string>;

export type RunningServiceProcess = Awaited<ReturnType<typeof startService>>;

/**
 * Starts a service on free ports and waits until it is ready. A worker without a
 * model server gets a simulator of its own, at the pace of `SIMULATOR_*`.
 */
export async function startService(name: ServiceName, env: ServiceEnv) {
  await using starting = new AsyncDisposableStack();
  const hasModels = !name.endsWith("-worker") || "UPSTREAM_BASE_URL" in env ||
    "MODELS_FILE" in env;
  const pace = {
    firstTokenMs: Number(env.SIMULATOR_FIRST_TOKEN_MS ?? 0),
    tokensPerSecond: Number(env.SIMULATOR_TOKENS_PER_SECOND ?? 0),
  };
  const models = hasModels
    ? NO_MODEL_SERVER
    : { MODEL_SIMULATOR_URL: starting.use(serveSimulator({ pace })).url };
  const process = starting.use(startMain(name, { ...models, ...env }));
  const line = await waitFor(
    () => /^.*"event":"ready".*$/m.exec(process.output())?.[0],
    { what: () => `${name}: ${process.output()}`, timeoutMs: START_MS },
  );
  const ready: Record<string, unknown> = JSON.parse(line);
  const url = `http://127.0.0.1:${ready.port}`;
  return owning(starting, { process, url, ready });
}

/** A simulator in this process, and the requests that reached it. */
export function startSimulator() {
  const asked: SeenRequest[] = [];
  const onRequest = (run: SeenRequest) => void asked.push(run);
  return Object.assign(serveSimulator({ onRequest }), {
    asked,
    /** The request with this number, from 1, as soon as it has come. */
    request: (number: number) => until(() => asked[number - 1]),
  });
}

/** Starts a service without any model server, and waits for nothing. */
export const startWithoutModels = (name: ServiceName, env: ServiceEnv) =>
  startMain(name, { ...env, MODEL_SIMULATOR_URL: "" });

/**
 * Runs `keys … --json` with these variables and returns what it prints;
 * `services/key-admin/cli_test.ts` has the process.
 */
export const runKeys = (env: ServiceEnv, ...args: string[]) =>
  run(["keys", ...args, "--json"], env);

/** Creates a key with these options of the command line. */
export async function makeKey(
  env: ServiceEnv,
  ...options: string[]
): Promise<{ id: string; key: string }> {
  const args = ["create", "--description=test", ...options];
  return JSON.parse(await runKeys(env, ...args));
}

export function sendChat(
  url: string,
  key: string,
  content: string,
  init: RequestInit & { client?: Deno.HttpClient } = {},
): Promise<Response> {
  const messages = [{ role: "user", content }];
  return postChat(`${url}/v1`, key, { messages }, init);
}

/** Without colours, and on any free ports. */
const startMain = (name: ServiceName, env: ServiceEnv) =>
  startProcess({
    command: Deno.execPath(),
    args: [...RUN, `services/${name}/main.ts`],
    cwd,
    env: { NO_COLOR: "1", OPS_PORT: "0", PORT: "0", ...env },
  });

/** Status of a chat request, whose answer is thrown away. */
export async function statusOf(url: string, key: string): Promise<number> {
  const response = await sendChat(url, key, "hello");
  await response.body?.cancel();
  return response.status;
}

/** Waits until the edge answers with what it knows of the key: anything but 503. */
export async function servedStatus(url: string, key: string): Promise<number> {
  return await waitFor(async () => {
    const status = await statusOf(url, key);
    return status !== 503 && status;
  }, { what: `${url} to serve`, timeoutMs: SERVED_MS, intervalMs: 50 });
}

/**
 * Sends requests until one is refused, and returns how many were admitted: at most
 * twice the limit.
 */
export async function admittedCount(url: string, key: string, limit: number) {
  for (let count = 0;; count++) {
    if (await servedStatus(url, key) === 429) return count;
    assert.ok(count <= 2 * limit, "the limit does not hold at all");
  }
}
