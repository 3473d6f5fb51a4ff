import { type RunningProcess, startProcess } from "./process.ts";
import { sleep, waitFor } from "./wait_for.ts";
import { findFreePorts } from "../../deploy/up/ports.ts";

const START_TIMEOUT_MS = 30_000;
const POLL_INTERVAL_MS = 3;
/** Another process may take a free port between looking and binding. */
const PORT_ATTEMPTS = 5;
const PORT_TAKEN = /address already in use/i;

/** A server of the machine, on a port and with a directory of its own. */
export type LocalServer = Awaited<ReturnType<typeof startLocalServer>>;

/** How to start one kind of server. */
export interface LocalServerOptions {
  command: string;
  /** A fixed port, or a free one is taken. */
  port: number | undefined;
  /** The command line for this port and directory. May write files there. */
  args: (port: number, directory: string) => Promise<string[]>;
  /** Added to the environment of the server. */
  env?: Record<string, string>;
  /**
   * Whether this very server serves: another one may sit on the port while ours is
   * about to fail. Refused connections count as no.
   */
  isReady: (server: StartedServer) => Promise<boolean>;
}

/** What tells a server from others. */
export interface StartedServer {
  port: number;
  pid: number;
  directory: string;
}

/** Starts a server and returns when it serves. */
export async function startLocalServer(options: LocalServerOptions) {
  await using starting = new AsyncDisposableStack();
  const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
  starting.defer(() => Deno.remove(directory, { recursive: true }));
  const started = await startOnSomePort(options, directory);
  const { port } = started;
  let { process } = started;
  starting.defer(() => process.kill());
  const running = starting.move();
  return {
    port,
    /** Removed when the server is disposed, kept over `restart()`. */
    directory,
    /** Of the process that runs now; another one after `restart()`. */
    pid: () => process.pid,
    isRunning: () => process.isRunning,
    /** What the running (or last) process wrote. */
    output: () => process.output(),
    signal: (signal: Deno.Signal) => process.signal(signal),
    /** SIGKILL, then waits until the process is gone. Data stays for `restart()`. */
    kill: () => process.kill(),
    /** SIGSTOP, returns when it stands still: connections stay open, nobody answers. */
    freeze: async () => {
      process.signal("SIGSTOP");
      await waitFor(() => isStopped(process.pid), {
        what: `${options.command} to stand still`,
      });
    },
    thaw: () => process.signal("SIGCONT"),
    /** Kills the process if it runs, and starts it on the same port with the same data. */
    restart: async () => {
      await process.kill();
      process = await startOn(port, options, directory);
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

async function startOnSomePort(options: LocalServerOptions, directory: string) {
  for (let attempt = 1;; attempt++) {
    const port = options.port ?? freePort();
    try {
      return { port, process: await startOn(port, options, directory) };
    } catch (error) {
      const mayTryAnother = options.port === undefined &&
        attempt < PORT_ATTEMPTS && PORT_TAKEN.test(String(error));
      if (!mayTryAnother) throw error;
    }
  }
}

async function startOn(
  port: number,
  options: LocalServerOptions,
  directory: string,
): Promise<RunningProcess> {
  const { command, env = {} } = options;
  const args = await options.args(port, directory);
  const process = startProcess({ command, args, env });
  const server = { port, directory, pid: process.pid };
  const isReady = () =>
    options.isReady(server).catch((error) => {
      if (isConnectionError(error)) return false;
      throw error;
    });
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < deadline && process.isRunning) {
    if (await isReady()) return process;
    await sleep(POLL_INTERVAL_MS);
  }
  await process.kill();
  throw new Error(
    `Cannot start ${command} on port ${port}: ${process.output()}`,
  );
}

function isConnectionError(error: unknown): boolean {
  return error instanceof Deno.errors.ConnectionRefused ||
    error instanceof Deno.errors.ConnectionReset;
}

/** The signal is sent at once, but threads may run on for a moment. */
async function isStopped(pid: number): Promise<boolean> {
  const ps = new Deno.Command("ps", { args: ["-o", "state=", "-p", `${pid}`] });
  const { stdout } = await ps.output();
  return new TextDecoder().decode(stdout).trim().startsWith("T");
}

/** What `Deno.connectTls` wants of a client: whom it trusts and who it is, PEM text. */
export type ClientTls = Pick<Deno.ConnectTlsOptions, "caCerts"> & {
  cert: string;
  key: string;
};

/**
 * Connects to a port of this machine, over TLS if `tls` says how, sends `request`
 * (nothing if empty) and returns the first bytes of the answer as text, empty if
 * there was none.
 */
export async function askPort(port: number, request: string, tls?: ClientTls) {
  const address = { hostname: "127.0.0.1", port };
  using connection = tls === undefined
    ? await Deno.connect(address)
    : await Deno.connectTls({ ...address, ...tls });
  if (request !== "") {
    await connection.write(new TextEncoder().encode(request));
  }
  const buffer = new Uint8Array(16 * 1024);
  const length = await connection.read(buffer) ?? 0;
  return new TextDecoder().decode(buffer.subarray(0, length));
}

/**
 * Returns a TCP port of 127.0.0.1 on which nobody listens now. Another process
 * may take it before the caller does, so a caller that starts a server must be
 * ready to try again.
 */
export function freePort(): number {
  const [port = 0] = findFreePorts(1);
  return port;
}
