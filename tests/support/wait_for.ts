/** How long to wait, how often to look, and what to say when it was in vain. */
export interface WaitOptions {
  /** The expected event, for the error message: "the worker to leave the table". */
  what: string | (() => string);
  /** Generous by default: a slow machine must not fail a correct program. */
  timeoutMs?: number;
  intervalMs?: number;
}

const TIMEOUT_MS = 5_000;
const INTERVAL_MS = 5;

/**
 * Looks at `condition` until it holds and returns what it then said.
 *
 * A condition does not hold while it returns `false`, `undefined` or `null`. One
 * that throws ends the wait: an unexpected error must not look like slowness.
 *
 * @throws Error naming `what` after `timeoutMs`.
 */
export async function waitFor<T>(
  condition: () => T | Promise<T>,
  options: WaitOptions,
): Promise<Exclude<T, false | undefined | null>> {
  const { what, timeoutMs = TIMEOUT_MS, intervalMs = INTERVAL_MS } = options;
  const deadline = performance.now() + timeoutMs;
  while (true) {
    const value = await condition();
    if (holds(value)) return value;
    if (performance.now() >= deadline) {
      const wanted = typeof what === "string" ? what : what();
      throw new Error(`Waited ${timeoutMs} ms in vain for ${wanted}`);
    }
    await sleep(intervalMs);
  }
}

/** {@link waitFor} whose message is the text of the condition. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  timeoutMs: number,
): Promise<void> {
  await waitFor(condition, { what: () => `${condition}`, timeoutMs });
}

function holds<T>(value: T): value is Exclude<T, false | undefined | null> {
  return value !== false && value !== undefined && value !== null;
}

/** Resolves after `ms`. For pacing a load, never for waiting on an effect. */
export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * What a machine that runs other tests at the same time may add to a wait that is
 * promised to be short: some turns of a busy event loop. The same everywhere, so
 * that no test forgives more than another.
 */
export const SCHEDULING_ALLOWANCE_MS = 60;
