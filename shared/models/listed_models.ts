/** The models that servers list, as the workers tell them. */
import { DISCOVERY_LIMITS, type ServerLists } from "../bus/server_lists.ts";
import type { ModelCatalog } from "./catalog.ts";
import type { MonotonicNow } from "../process/clock.ts";

/** What keeping the models that workers tell needs. */
export interface ListedModelsOptions {
  catalog: Pick<ModelCatalog, "list">;
  now: MonotonicNow;
}

/** When the last worker has lost each model; null while one has it. */
type Ids = Map<string, number | null>;

/**
 * Keeps the catalog of a process up to date: it has what any living worker's servers
 * list, and for {@link DISCOVERY_LIMITS.awayMs} what the last worker to list it took
 * with it, so that clients try again when workers are replaced, and do not take their
 * model for unknown. A model that a server has stopped listing is unknown at once.
 */
export class ListedModels {
  readonly #options: ListedModelsOptions;
  readonly #listsByWorker = new Map<string, ServerLists>();
  /** By the name of the server, in the order of its list. */
  readonly #ids = new Map<string, Ids>();
  #nextSweepMs = Infinity;

  constructor(options: ListedModelsOptions) {
    this.#options = options;
  }

  /** A worker has told what its servers list. */
  take(workerId: string, lists: ServerLists): void {
    const before = this.#listsByWorker.get(workerId);
    this.#listsByWorker.set(workerId, lists);
    if (before !== undefined && isSame(before, lists)) return;
    this.#forget(before ?? {});
    this.#update();
  }

  /** Drops those of these models that no worker lists. */
  #forget(before: ServerLists): void {
    for (const [server, ids] of Object.entries(before)) {
      const isListed = (id: string) =>
        this.#listsByWorker.values().some((lists) =>
          lists[server]?.includes(id)
        );
      for (const id of ids) {
        if (!isListed(id)) this.#ids.get(server)?.delete(id);
      }
    }
  }

  /** A worker is gone, or was told to stop. */
  lost(workerId: string): void {
    if (this.#listsByWorker.delete(workerId)) this.#update();
  }

  /** Advances time: forgets models that no worker has had for long. */
  tick(): void {
    if (this.#options.now() >= this.#nextSweepMs) this.#update();
  }

  #update(): void {
    const nowMs = this.#options.now();
    for (const ids of this.#ids.values()) {
      for (const [id, lostAtMs] of ids) ids.set(id, lostAtMs ?? nowMs);
    }
    for (const lists of this.#listsByWorker.values()) {
      for (const [server, listed] of Object.entries(lists)) {
        const ids: Ids = this.#ids.get(server) ?? new Map();
        this.#ids.set(server, ids);
        for (const id of listed) ids.set(id, null);
      }
    }
    this.#sweep(nowMs);
    const lists = Object.fromEntries(
      [...this.#ids].map(([server, ids]) => [server, [...ids.keys()]]),
    );
    this.#options.catalog.list(lists, this.#away());
  }

  #sweep(nowMs: number): void {
    this.#nextSweepMs = Infinity;
    for (const ids of this.#ids.values()) {
      for (const [id, lostAtMs] of ids) {
        if (lostAtMs === null) continue;
        const endsMs = lostAtMs + DISCOVERY_LIMITS.awayMs;
        if (endsMs <= nowMs) ids.delete(id);
        else this.#nextSweepMs = Math.min(this.#nextSweepMs, endsMs);
      }
    }
  }

  /** What no server has any more for any worker. */
  #away(): Set<string> {
    const all = this.#ids.values().flatMap((ids) => [...ids]).toArray();
    const here = new Set(
      all.filter(([, lostAtMs]) => lostAtMs === null).map(([id]) => id),
    );
    return new Set(all.map(([id]) => id).filter((id) => !here.has(id)));
  }
}

function isSame(one: ServerLists, other: ServerLists): boolean {
  const servers = Object.keys(one);
  return servers.length === Object.keys(other).length &&
    servers.every((server) => {
      const [ids = [], others] = [one[server], other[server]];
      return ids.length === others?.length &&
        ids.every((id, index) => id === others[index]);
    });
}
