/** Single services as processes, told everything by their environment. */
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { type RunningProcess, startProcess } from "./process.ts";
import { waitFor } from "./wait_for.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const START_MS = 30_000;
const MODEL = "neutral-3.7-plus";

/** Variables of one service. */
export type ServiceEnv = Record<string, string>;

/** A service that has said that it is ready. */
export interface RunningServiceProcess extends AsyncDisposable {
  readonly process: RunningProcess;
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  /** What its `ready` line said: ports and ids. */
  readonly ready: Record<string, unknown>;
}

/** Starts a service on free ports and waits until it is ready. */
export async function startService(
  name: "edge-auth" | "chat-worker" | "key-admin",
  env: ServiceEnv,
): Promise<RunningServiceProcess> {
  const process = runDeno(`services/${name}/main.ts`, [], env);
  const line = await waitFor(
    () => /^.*"event":"ready".*$/m.exec(process.output())?.[0],
    { what: () => `${name}: ${process.output()}`, timeoutMs: START_MS },
  );
  const ready: Record<string, unknown> = JSON.parse(line);
  return {
    process,
    url: `http://127.0.0.1:${ready.port}`,
    ready,
    [Symbol.asyncDispose]: () => process[Symbol.asyncDispose](),
  };
}

/** Starts a service whose log goes to a file or device, and waits for nothing. */
export function startServiceLoggingTo(
  path: string,
  name: "edge-auth" | "chat-worker" | "key-admin",
  env: ServiceEnv,
): RunningProcess {
  return startProcess({
    command: "sh",
    args: [
      ...["-c", 'to=$1; shift; exec "$@" > "$to"', "sh", path],
      ...[Deno.execPath(), ...denoArguments(`services/${name}/main.ts`)],
    ],
    cwd: ROOT,
    env: { ...QUIET, ...env },
  });
}

/** Runs `keys … --json` with this environment and returns what it printed. */
export async function runKeys(
  env: ServiceEnv,
  ...args: string[]
): Promise<string> {
  await using process = runDeno(
    "services/key-admin/cli.ts",
    ["keys", ...args, "--json"],
    env,
  );
  const { success } = await process.exited;
  assert.ok(success, process.output());
  return process.output();
}

/** Sends a chat request to an edge. */
export function sendChat(
  url: string,
  key: string,
  content: string,
  init: RequestInit & { client?: Deno.HttpClient } = {},
): Promise<Response> {
  return fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: MODEL,
      messages: [{ role: "user", content }],
    }),
    ...init,
  });
}

/** No colours, and any free ports. */
const QUIET: ServiceEnv = { NO_COLOR: "1", OPS_PORT: "0", PORT: "0" };

function runDeno(
  script: string,
  args: string[],
  env: ServiceEnv,
): RunningProcess {
  return startProcess({
    command: Deno.execPath(),
    args: [...denoArguments(script), ...args],
    cwd: ROOT,
    env: { ...QUIET, ...env },
  });
}

function denoArguments(script: string): string[] {
  return [
    ...["run", "--no-check", "--allow-net", "--allow-env", "--allow-read"],
    ...["--allow-sys", "--allow-ffi", script],
  ];
}
