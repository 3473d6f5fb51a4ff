/**
 * Which request belongs to which key, while it runs: for a key that is disabled
 * together with its running requests.
 */
import type { Principal } from "@gateway/shared/keys/record";

export class RunningRequests {
  readonly #requestsByKey = new Map<string, Set<string>>();

  add(principal: Principal, requestId: string): void {
    const requests = this.#requestsByKey.get(principal.keyId);
    if (requests !== undefined) requests.add(requestId);
    else this.#requestsByKey.set(principal.keyId, new Set([requestId]));
  }

  remove(principal: Principal, requestId: string): void {
    const requests = this.#requestsByKey.get(principal.keyId);
    requests?.delete(requestId);
    if (requests?.size === 0) this.#requestsByKey.delete(principal.keyId);
  }

  /** Ids of the running requests of a key. */
  of(keyId: string): ReadonlySet<string> {
    return this.#requestsByKey.get(keyId) ?? new Set();
  }

  /** Keys that have running requests, for metrics. */
  get keys(): number {
    return this.#requestsByKey.size;
  }
}
