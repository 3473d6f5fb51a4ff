import type { MonotonicNow } from "../process/clock.ts";
import { BusTimeoutError, BusUnavailableError } from "./link_errors.ts";

/**
 * A timer that fires later than this says that the event loop stood still. The
 * awaited answer may then be there already, unread, so it gets another moment.
 */
const LAG_MAX_MS = 200;
const LAG_GRACE_MS = 50;

/** One thing that is awaited. Only the first of its settlements counts. */
export interface Wait<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
  reject(error: Error): void;
  /** Nobody waits any more: the promise stays unsettled. */
  cancel(): void;
}

/** All that is awaited from the bus, so that losing the connection can end it at once. */
export class Waits {
  readonly #now: MonotonicNow;
  readonly #open = new Set<{ reject(error: Error): void }>();

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** Begins to wait. After `timeoutMs` the promise rejects with `timeoutError()`. */
  open<T>(timeoutMs: number, timeoutError: () => Error): Wait<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const dueAt = this.#now() + timeoutMs;
    let isExtended = false;
    const expire = () => {
      if (!isExtended && this.#now() - dueAt > LAG_MAX_MS) {
        isExtended = true;
        timer = setTimeout(expire, LAG_GRACE_MS);
        return;
      }
      wait.reject(timeoutError());
    };
    let timer = setTimeout(expire, timeoutMs);
    const finish = () => {
      clearTimeout(timer);
      this.#open.delete(wait);
    };
    const wait: Wait<T> = {
      promise,
      resolve: (value) => {
        finish();
        resolve(value);
      },
      reject: (error) => {
        finish();
        reject(error);
      },
      cancel: finish,
    };
    this.#open.add(wait);
    return wait;
  }

  /** Gives a promise of the client a deadline, and an end when the connection is lost. */
  within(work: Promise<void>, timeoutMs: number, what: string): Promise<void> {
    const wait = this.open<void>(
      timeoutMs,
      () => new BusTimeoutError(`Cannot ${what}: no answer in ${timeoutMs} ms`),
    );
    work.then(
      wait.resolve,
      (cause) =>
        wait.reject(
          new BusUnavailableError(`Cannot ${what}: the connection was lost`, {
            cause,
          }),
        ),
    );
    return wait.promise;
  }

  /** Ends every wait now. */
  rejectAll(createError: () => Error): void {
    for (const wait of [...this.#open]) wait.reject(createError());
  }
}
