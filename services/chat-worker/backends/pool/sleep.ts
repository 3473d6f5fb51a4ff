/** Resolves after `ms`, or rejects with the signal's reason when that aborts first. */
export type Sleep = (ms: number, signal: AbortSignal) => Promise<void>;

/** Waits on the process's timers. */
export const sleep: Sleep = (ms, signal) => {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  if (signal.aborted) return Promise.reject(signal.reason);
  const onAbort = () => {
    clearTimeout(timer);
    reject(signal.reason);
  };
  const timer = setTimeout(() => {
    signal.removeEventListener("abort", onAbort);
    resolve();
  }, ms);
  signal.addEventListener("abort", onAbort, { once: true });
  return promise;
};
