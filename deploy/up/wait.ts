import { setTimeout as delay } from "node:timers/promises";

/** Resolves after `ms`, or at once when `signal` aborts. Never rejects. */
export async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => {});
}

/** The value of `promise`, or `undefined` when it takes longer than `ms`. */
export async function within<T>(
  promise: Promise<T>,
  ms: number,
): Promise<T | undefined> {
  const over = new AbortController();
  const late = sleep(ms, over.signal).then(() => undefined);
  try {
    return await Promise.race([promise, late]);
  } finally {
    over.abort();
  }
}
