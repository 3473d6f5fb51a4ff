/** What model servers list, as workers tell it on their beats: edges read the same. */
import { decodeWorkerBeat } from "@gateway/shared/bus/job";
import { FlowWatch } from "@gateway/shared/bus/link";
import { BusLink } from "@gateway/shared/bus/link_nats";
import { lastToken, subjects } from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { ModelCatalog } from "@gateway/shared/models/catalog";
import { ListedModels } from "@gateway/shared/models/listed_models";
import {
  type MonotonicNow,
  monotonicNow,
  SteadyClock,
} from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import {
  type BusAccess,
  INBOX_PREFIXES,
} from "@gateway/shared/process/service_variables";

/** More often than a steady clock needs. */
const TICK_MS = 100;

/** What a follower needs. */
export interface ListFollowerOptions {
  bus: Pick<BusLink, "flowingSinceMs">;
  catalog: Pick<ModelCatalog, "list">;
  now: MonotonicNow;
}

/** Keeps a catalog up to date. While the bus is down, it stays as it is. */
export class ListFollower {
  readonly #flow: FlowWatch;
  readonly #clock: SteadyClock;
  readonly #listed: ListedModels;
  /** When the last beat of each worker came. */
  readonly #beatAtMs = new Map<string, number>();

  constructor({ bus, catalog, now }: ListFollowerOptions) {
    this.#flow = new FlowWatch(bus, now);
    this.#clock = new SteadyClock(now);
    this.#listed = new ListedModels({ catalog, now });
  }

  /** A message on a worker's beat subject. Ignores one of another version. */
  onBeatMessage(subject: string, data: Uint8Array): void {
    const beat = decodeWorkerBeat(data);
    if (beat === null) return;
    const workerId = lastToken(subject);
    this.#beatAtMs.set(workerId, this.#clock.now());
    if (beat.listed !== undefined) this.#listed.told(workerId, beat.listed);
  }

  /** Advances time. Must be called much more often than every 200 ms. */
  tick(): void {
    this.#clock.tick();
    const nowMs = this.#clock.now();
    const isRestored = this.#flow.look();
    // While the bus is down, no beat can arrive: silence proves nothing.
    if (this.#flow.lostForMs > 0) return;
    for (const [workerId, beatAtMs] of this.#beatAtMs) {
      if (isRestored) this.#beatAtMs.set(workerId, nowMs);
      else if (nowMs - beatAtMs >= DISPATCH_LIMITS.workerLostMs) {
        this.#beatAtMs.delete(workerId);
        this.#listed.lost(workerId);
      }
    }
    this.#listed.tick();
  }
}

/**
 * Follows the lists of a catalog that has servers. Returns a function that ends it. The
 * console also works while the bus cannot be reached.
 */
export function followLists(
  { access, catalog, log }: {
    access: BusAccess;
    catalog: ModelCatalog;
    log: Log;
  },
): () => Promise<void> {
  if (catalog.servers.length === 0) return () => Promise.resolve();
  const bus = new BusLink({
    ...access,
    name: "key-admin lists",
    inboxPrefix: INBOX_PREFIXES.admin,
    log,
    now: monotonicNow,
    random: Math.random,
    timing: { firstConnectMs: Infinity },
  });
  // Rejects only when it is closed before its first connection.
  bus.first.promise.catch(() => {});
  const follower = new ListFollower({ bus, catalog, now: monotonicNow });
  bus.subscribe(subjects.workerBeats, ({ subject, data }) => {
    follower.onBeatMessage(subject, data);
  });
  const timer = setInterval(() => follower.tick(), TICK_MS);
  return async () => {
    clearInterval(timer);
    await bus.close();
  };
}
