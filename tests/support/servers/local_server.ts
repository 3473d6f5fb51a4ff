/** Servers of other projects, on free ports of this machine. */
import {
  makeTempDir,
  owning,
  type RunningProcess,
  runProcess,
  startProcess,
} from "../process.ts";
import { sleep, until } from "../wait_for.ts";
import { findFreePorts } from "../../../deploy/up/ports.ts";

const START_TIMEOUT_MS = 30_000;
const POLL_INTERVAL_MS = 3;
/** Another process may take a free port between looking and binding. */
const PORT_ATTEMPTS = 5;
const PORT_TAKEN = /address already in use/i;

/** A server of the machine, on a port and with a directory of its own. */
export interface LocalServer extends AsyncDisposable {
  readonly port: number;
  /** Removed when the server is disposed, kept over `restart()`. */
  readonly directory: string;
  /** The id of the process that runs now; another one after `restart()`. */
  pid(): number;
  isRunning(): boolean;
  /** What the running (or last) process wrote. */
  output(): string;
  signal(signal: Deno.Signal): void;
  /** SIGKILL, then waits until the process is gone. Data stays for `restart()`. */
  kill(): Promise<void>;
  /** SIGSTOP, returns when it stands still: connections stay open, nobody answers. */
  freeze(): Promise<void>;
  thaw(): void;
  /**
   * Kills the process if it runs, and starts it on the same port with the same data.
   */
  restart(): Promise<void>;
}

interface LocalServerOptions {
  command: string;
  /** A fixed port, or a free one is taken. */
  port?: number | undefined;
  /** The command line for this port and directory. May write files there. */
  args: (port: number, directory: string) => string[] | Promise<string[]>;
  /** Added to the environment of the server. */
  env?: Record<string, string> | undefined;
  /**
   * Whether this very server serves, and not another one on its port. A refused
   * connection means no.
   */
  isReady: (
    server: { port: number; pid: number; directory: string },
  ) => Promise<boolean>;
}

/**
 * Starts a server on a free port and waits until it is ready; it can be killed, frozen
 * and restarted.
 */
export async function startLocalServer(
  options: LocalServerOptions,
): Promise<LocalServer> {
  await using starting = new AsyncDisposableStack();
  const { path: directory } = starting.use(await makeTempDir());
  const first = await startOnSomePort(options, directory);
  const { port } = first;
  let { process } = first;
  starting.defer(() => process.kill());
  return owning(starting, {
    port,
    directory,
    pid: () => process.pid,
    isRunning: () => process.isRunning,
    output: () => process.output(),
    signal: (signal: Deno.Signal) => process.signal(signal),
    kill: () => process.kill(),
    freeze: async () => {
      process.signal("SIGSTOP");
      await until(() => isStopped(process.pid));
    },
    thaw: () => process.signal("SIGCONT"),
    restart: async () => {
      await process.kill();
      process = await startOn(port, options, directory);
    },
  });
}

async function startOnSomePort(options: LocalServerOptions, directory: string) {
  for (let attempt = 1;; attempt++) {
    const port = options.port ?? freePort();
    try {
      return { port, process: await startOn(port, options, directory) };
    } catch (error) {
      const isTaken = options.port === undefined &&
        PORT_TAKEN.test(String(error));
      if (!isTaken || attempt === PORT_ATTEMPTS) throw error;
    }
  }
}

async function startOn(
  port: number,
  options: LocalServerOptions,
  directory: string,
): Promise<RunningProcess> {
  const { command, env } = options;
  const args = await options.args(port, directory);
  const process = startProcess({ command, args, env });
  const server = { port, directory, pid: process.pid };
  const isReady = () =>
    options.isReady(server).catch((error) => {
      if (error instanceof Deno.errors.ConnectionRefused) return false;
      if (error instanceof Deno.errors.ConnectionReset) return false;
      throw error;
    });
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < deadline && process.isRunning) {
    if (await isReady()) return process;
    await sleep(POLL_INTERVAL_MS);
  }
  await process.kill();
  const why = process.output();
  throw new Error(`Cannot start ${command} on port ${port}: ${why}`);
}

/** The signal is sent at once, but threads may run on for a moment. */
async function isStopped(pid: number): Promise<boolean> {
  const args = ["-o", "state=", "-p", `${pid}`];
  return (await runProcess("ps", args)).trim().startsWith("T");
}

/**
 * A TCP port of 127.0.0.1 on which nobody listens now, though another process may take
 * it next.
 */
export function freePort(): number {
  const [port = 0] = findFreePorts(1);
  return port;
}
