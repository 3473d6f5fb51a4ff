/**
 * Which request belongs to which key, from before it is admitted until it has
 * ended: for a key that is disabled together with its running requests.
 */
import type { Principal } from "@gateway/shared/keys/record";

export class RunningRequests {
  readonly #requestsByKey = new Map<string, Set<string>>();
  /** Stopped while Redis was still being asked: they have no run that could be cancelled. */
  readonly #stopped = new Set<string>();

  /** Must come before the key is checked: a notice to stop may overtake the answer. */
  add(principal: Principal, requestId: string): void {
    const requests = this.#requestsByKey.get(principal.keyId);
    if (requests !== undefined) requests.add(requestId);
    else this.#requestsByKey.set(principal.keyId, new Set([requestId]));
  }

  remove(principal: Principal, requestId: string): void {
    this.#stopped.delete(requestId);
    const requests = this.#requestsByKey.get(principal.keyId);
    requests?.delete(requestId);
    if (requests?.size === 0) this.#requestsByKey.delete(principal.keyId);
  }

  /** Marks the requests of a key and returns their ids. */
  stop(keyId: string): ReadonlySet<string> {
    const requests = new Set(this.#requestsByKey.get(keyId));
    for (const requestId of requests) this.#stopped.add(requestId);
    return requests;
  }

  /** Whether a notice to stop this request has come. */
  isStopped(requestId: string): boolean {
    return this.#stopped.has(requestId);
  }

  /** Keys that have running requests. None when all requests are over, which is what tests ask. */
  get keys(): number {
    return this.#requestsByKey.size;
  }
}
