/** Services as processes, each configured by its environment. */
import { fileURLToPath } from "node:url";
import type { ServiceName } from "../../../deploy/up/plan.ts";
import { serveSimulator } from "../../../services/model-simulator/simulator.ts";
import { owning, type RunningProcess, startProcess } from "../process.ts";
import { waitFor } from "../wait_for.ts";

const cwd = fileURLToPath(new URL("../../..", import.meta.url));
const START_MS = 30_000;
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

/** Variables of a service. */
export type ServiceEnv = Record<string, string>;

/** What the services of a {@link ServicesGateway} have in common. */
export interface ServicesOptions {
  /** Variables of every service that {@link ServicesGateway.start} starts. */
  env?: ServiceEnv;
}

/** A service that is ready. */
export interface RunningService extends AsyncDisposable {
  readonly process: RunningProcess;
  /** Where it serves, without a path. */
  readonly url: string;
  /** Its log line `ready`: `port`, `opsPort`, `version` and more. */
  readonly ready: Record<string, unknown>;
}

/** A gateway of services that the test starts one by one. */
export class ServicesGateway implements AsyncDisposable {
  readonly #running = new AsyncDisposableStack();
  readonly #edges: RunningService[] = [];
  readonly #env: ServiceEnv;

  constructor({ env = {} }: ServicesOptions) {
    this.#env = env;
  }

  /**
   * Starts a service on free ports and waits until it is ready. A worker without a
   * model server gets a simulator of its own, at the pace of `SIMULATOR_*`.
   */
  async start(
    name: ServiceName,
    env: ServiceEnv = {},
  ): Promise<RunningService> {
    const service = await startService(name, { ...this.#env, ...env });
    this.#running.use(service);
    if (name === "edge-auth") this.#edges.push(service);
    return service;
  }

  /** The base URL of an edge, as an SDK takes it. */
  baseUrl(edge = 0): string {
    return `${this.#edges[edge]?.url ?? ""}/v1`;
  }

  /** Kills all of them, the last one first. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.#running.disposeAsync();
  }
}

async function startService(
  name: ServiceName,
  env: ServiceEnv,
): Promise<RunningService> {
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

/** Starts a service without any model server, and waits for nothing. */
export function startWithoutModels(
  name: ServiceName,
  env: ServiceEnv,
): RunningProcess {
  return startMain(name, { ...env, MODEL_SIMULATOR_URL: "" });
}

/** Without colours, and on any free ports. */
function startMain(name: ServiceName, env: ServiceEnv): RunningProcess {
  return startProcess({
    command: Deno.execPath(),
    args: [...RUN, `services/${name}/main.ts`],
    cwd,
    env: { NO_COLOR: "1", OPS_PORT: "0", PORT: "0", ...env },
  });
}
