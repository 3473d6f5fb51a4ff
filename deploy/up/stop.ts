import type { MonotonicNow } from "@gateway/shared/process/clock";

/** How the operator ends it. */
export interface StopRequest {
  /** Stop in order. */
  requested: AbortSignal;
  /** Stop waiting for what still runs. */
  hurry: AbortSignal;
}

/** A request to stop that signals make, or the loss of a runner. */
export interface StopListener extends StopRequest {
  stop(): void;
}

/** One Ctrl-C arrives from the terminal and again from each runner that passes it on. */
const SAME_INTERRUPT_MS = 300;

/**
 * Turns signals into a request to stop: each asks for it, and a later Ctrl-C asks
 * to hurry. A second SIGTERM does not: supervisors repeat theirs.
 */
export async function listenForStop(now: MonotonicNow): Promise<StopListener> {
  const requested = new AbortController();
  const hurry = new AbortController();
  let requestedAtMs = 0;
  const stop = () => {
    if (!requested.signal.aborted) requestedAtMs = now();
    requested.abort();
  };
  const isHangUpIgnored = await ignoresHangUp();
  Deno.addSignalListener("SIGTERM", stop);
  // Deno ends at SIGHUP once it handles any signal, so ignoring it takes a listener.
  Deno.addSignalListener("SIGHUP", isHangUpIgnored ? () => {} : stop);
  Deno.addSignalListener("SIGINT", () => {
    const isSecond = requested.signal.aborted &&
      now() - requestedAtMs > SAME_INTERRUPT_MS;
    if (isSecond) hurry.abort();
    else stop();
  });
  return { requested: requested.signal, hurry: hurry.signal, stop };
}

/** True under `nohup`: a new process inherits what is ignored. Must be asked before we listen. */
async function ignoresHangUp(): Promise<boolean> {
  const child = new Deno.Command("sleep", { args: ["0.1"] }).spawn();
  child.kill("SIGHUP");
  return (await child.status).success;
}

type Environment = Readonly<Record<string, string>>;

/** A process and the parent it must keep. */
interface Link {
  pid: number;
  parent: number;
}

const LOOK_EVERY_MS = 500;

/**
 * Watches the processes above the launcher that only exist to run it: `deno task`,
 * and `npx` with its shell. Killing one of those with -9 reaches nobody else.
 * Calls `onLost` once when a runner has died. Answers with a function that ends
 * the watch. The shell of a terminal is no runner: a cluster started in the
 * background may outlive it.
 */
export async function watchRunners(
  pid: number,
  env: Environment,
  onLost: () => void,
): Promise<() => void> {
  // `deno task` and `npx` note where they were started.
  if (!env.INIT_CWD) return () => {};
  const parent = Deno.ppid;
  const links = [{ pid, parent }, ...await npxLinks(parent, env)];
  const timer = setInterval(async () => {
    const parents = await Promise.all(links.map(parentOf));
    if (links.every((link, i) => parents[i] === link.parent)) return;
    clearInterval(timer);
    onLost();
  }, LOOK_EVERY_MS);
  return () => clearInterval(timer);
}

/**
 * Up to the `npx` whose command this is: those below it have that in their
 * environment. Only Linux shows the environment of others.
 */
async function npxLinks(
  start: number,
  { npm_lifecycle_event: event, npm_lifecycle_script: script }: Environment,
): Promise<Link[]> {
  const links: Link[] = [];
  if (event !== "npx" || script === undefined) return links;
  for (let pid = start; await hasVariable(pid);) {
    const parent = await parentOf({ pid, parent: 0 });
    links.push({ pid, parent });
    pid = parent;
  }
  return links;

  async function hasVariable(pid: number): Promise<boolean> {
    const text = await Deno.readTextFile(`/proc/${pid}/environ`)
      .catch(() => "");
    return text.split("\0").includes(`npm_lifecycle_script=${script}`);
  }
}

/** The parent that a process has now; 0 when it is gone. */
async function parentOf({ pid }: Link): Promise<number> {
  if (pid === Deno.pid) return Deno.ppid;
  const stat = await Deno.readTextFile(`/proc/${pid}/stat`).catch(() => "");
  // `123 (name) S 122 …`, where the name may hold anything.
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1] ?? 0);
}
