/** Waiting for conditions, with a deadline. */
import process from "node:process";

const TIMEOUT_MS = 30_000;
const INTERVAL_MS = 5;
/** After a long wait it looks less often: a twentieth of the wait later, up to this. */
const SELDOM_MS = 25;
const LOOKS = 20;

/**
 * Waits until `condition` returns something other than `false`, `undefined` or `null`,
 * and returns that. Fails after `timeoutMs`, and at once if the condition throws.
 */
export async function waitFor<T>(
  condition: () => T | Promise<T>,
  { what, timeoutMs = TIMEOUT_MS, intervalMs = INTERVAL_MS }: {
    /** The expected event, for the error message: "the worker to leave the table". */
    what: string | (() => string);
    /**
     * By a {@link startStopwatch}; generous, because a slow machine must not fail a
     * correct program.
     */
    timeoutMs?: number;
    intervalMs?: number;
  },
): Promise<Exclude<T, false | undefined | null>> {
  using watch = startStopwatch();
  while (true) {
    const value = await condition();
    if (holds(value)) return value;
    if (watch.ms >= timeoutMs) {
      const condition = typeof what === "string" ? what : what();
      throw new Error(`Waited ${timeoutMs} ms in vain for ${condition}`);
    }
    const seldomMs = Math.min(watch.ms / LOOKS, SELDOM_MS);
    await sleep(Math.max(seldomMs, intervalMs));
  }
}

/** {@link waitFor} whose message is the text of the condition. */
export const until = <T>(
  condition: () => T | Promise<T>,
  timeoutMs = TIMEOUT_MS,
) => waitFor(condition, { what: () => `${condition}`, timeoutMs });

function holds<T>(value: T): value is Exclude<T, false | undefined | null> {
  return value !== false && value !== undefined && value !== null;
}

/** Resolves after `ms`. For pacing a load, never for waiting on an effect. */
export const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, ms));

/**
 * What other tests on the machine may add to a short wait: some turns of a busy event
 * loop.
 */
export const SCHEDULING_ALLOWANCE_MS = 60;

const LOOK_MS = 5;
const US_PER_MS = 1_000;

/** What this thread has computed so far: other files and processes do not count. */
export function threadMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / US_PER_MS;
}

/** Counts time until it is disposed of. */
export interface Stopwatch extends Disposable {
  readonly ms: number;
}

/**
 * Starts a stopwatch for a promise about time. It leaves out what the machine takes
 * away from this process, edges and workers in it included, as services do it with
 * their deadlines: a turn of the event loop that comes late counts 6 ms, or as long as
 * this process computed meanwhile. Code that blocks the event loop is not left out.
 */
export function startStopwatch(): Stopwatch {
  let lookedAtMs = performance.now();
  let ms = 0;
  let used = process.cpuUsage();
  const look = () => {
    const nowMs = performance.now();
    const { user, system } = process.cpuUsage(used);
    const computedMs = (user + system) / US_PER_MS;
    ms += Math.min(nowMs - lookedAtMs, Math.max(computedMs, LOOK_MS + 1));
    lookedAtMs = nowMs;
    used = process.cpuUsage();
    return ms;
  };
  const looking = setInterval(look, LOOK_MS);
  return {
    get ms() {
      return look();
    },
    [Symbol.dispose]: () => clearInterval(looking),
  };
}
