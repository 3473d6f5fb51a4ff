/**
 * Follows the messages of workers: beats, with the models that their servers list, and
 * reports of what they have seen of their backends; and what waits at edges.
 */
import { setTimeout as delay } from "node:timers/promises";
import { decodeReport } from "@gateway/shared/backends/report";
import { BackendReports } from "@gateway/shared/backends/reports";
import { decodeWorkerBeat } from "@gateway/shared/bus/job";
import { BusUnavailableError, FlowWatch } from "@gateway/shared/bus/link";
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
import { settlesWithin } from "@gateway/shared/process/lifecycle/serve";
import {
  type BusAccess,
  INBOX_PREFIXES,
} from "@gateway/shared/process/service_variables";
import { WaitingRequests } from "./waiting_requests.ts";

/** More often than a steady clock needs. */
const TICK_MS = 100;
const EMPTY = new Uint8Array(0);

/** Dependencies of a {@link WorkerFollower}. */
export interface WorkerFollowerOptions {
  bus: Pick<BusLink, "flowingSinceMs">;
  /** Null if nobody needs the lists of servers. */
  catalog: Pick<ModelCatalog, "list"> | null;
  backends: Pick<BackendReports, "take" | "lost">;
  now: MonotonicNow;
}

/**
 * Keeps a catalog and the reports of workers up to date. While the bus is down, they
 * stay as they are.
 */
export class WorkerFollower {
  readonly #flow: FlowWatch;
  readonly #clock: SteadyClock;
  readonly #listed: ListedModels | null;
  readonly #backends: WorkerFollowerOptions["backends"];
  /** When each worker has given its last sign of life. */
  readonly #beatAtMs = new Map<string, number>();
  /** The mistakes that beats of workers name, by worker. */
  readonly #mistakes = new Map<string, string>();

  constructor({ bus, catalog, backends, now }: WorkerFollowerOptions) {
    this.#flow = new FlowWatch(bus, now);
    this.#clock = new SteadyClock(now);
    this.#listed = catalog && new ListedModels({ catalog, now });
    this.#backends = backends;
  }

  /** Why workers have not taken the present list of models, each reason once. */
  get mistakes(): readonly string[] {
    return [...new Set(this.#mistakes.values())];
  }

  /** How many workers live, as far as is known. */
  get workers(): number {
    return this.#beatAtMs.size;
  }

  /** A message on a worker's beat subject. Ignores one of another version. */
  onBeatMessage(subject: string, data: Uint8Array): void {
    const beat = decodeWorkerBeat(data);
    if (beat === null) return;
    const workerId = lastToken(subject);
    this.#beatAtMs.set(workerId, this.#clock.now());
    if (beat.mistake === undefined) this.#mistakes.delete(workerId);
    else this.#mistakes.set(workerId, beat.mistake);
    if (beat.listed !== undefined) this.#listed?.take(workerId, beat.listed);
  }

  /** A worker has told of some of its backends. Ignores what cannot be read. */
  onBackendsMessage(subject: string, data: Uint8Array): void {
    const workerId = lastToken(subject);
    const report = decodeReport(data);
    if (report === null) return;
    // A sign of life, which may come before the first beat that is heard.
    this.#beatAtMs.set(workerId, this.#clock.now());
    this.#backends.take(workerId, report);
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
        this.#mistakes.delete(workerId);
        this.#listed?.lost(workerId);
        this.#backends.lost(workerId);
      }
    }
    this.#listed?.tick();
  }
}

/** Followed workers: their reports, until {@link FollowedWorkers.stop}. */
export interface FollowedWorkers {
  readonly backends: BackendReports;
  readonly follower: Pick<WorkerFollower, "workers">;
  readonly waiting: WaitingRequests;
  /** Why workers have not taken the present list of models, each reason once. */
  mistakes(): readonly string[];
  readonly bus: BusLink;
  /** Follows them no more. */
  stop(): Promise<void>;
}

/** A command waits for the bus this long. */
const CONNECT_MS = 2_000;
/** Long enough for two beats of each worker. */
const ANSWER_MS = 600;
/** Workers of an older version may send nothing. */
const ANSWER_MS_MAX = 1_500;
const LOOK_MS = 50;

/**
 * Resolves when all workers that live have told of their backends. Throws a
 * {@link BusUnavailableError} if the bus cannot be reached.
 */
export async function workersReported(
  { bus, follower, backends }: FollowedWorkers,
): Promise<void> {
  if (!await settlesWithin(bus.first.promise, CONNECT_MS)) {
    throw new BusUnavailableError("NATS does not answer");
  }
  const startedAtMs = monotonicNow();
  for (let waitedMs = 0; waitedMs < ANSWER_MS_MAX;) {
    await delay(LOOK_MS);
    waitedMs = monotonicNow() - startedAtMs;
    const haveAll = follower.workers > 0 &&
      backends.workers >= follower.workers;
    if (waitedMs >= ANSWER_MS && haveAll) return;
  }
}

/**
 * Follows workers from the first moment on: it asks them for reports. The console also
 * works while the bus cannot be reached.
 */
export function followWorkers(
  { access, catalog, log }: {
    access: BusAccess;
    catalog: ModelCatalog | undefined;
    log: Log;
  },
): FollowedWorkers {
  const bus = new BusLink({
    ...access,
    name: "key-admin workers",
    inboxPrefix: INBOX_PREFIXES.admin,
    log,
    now: monotonicNow,
    random: Math.random,
    timing: { firstConnectMs: Infinity },
  });
  // Rejects only when it is closed before its first connection.
  bus.first.promise.then(
    () => bus.publish(subjects.backendsWanted, EMPTY),
    () => {},
  );
  const backends = new BackendReports(monotonicNow);
  const follower = new WorkerFollower({
    bus,
    catalog: catalog ?? null,
    backends,
    now: monotonicNow,
  });
  bus.subscribe(subjects.workerBeats, ({ subject, data }) => {
    follower.onBeatMessage(subject, data);
  });
  bus.subscribe(subjects.allBackends, ({ subject, data }) => {
    follower.onBackendsMessage(subject, data);
  });
  const waiting = new WaitingRequests(monotonicNow);
  bus.subscribe(subjects.edgeBeats, ({ subject, data }) => {
    waiting.onBeat(lastToken(subject), data);
  });
  const timer = setInterval(() => follower.tick(), TICK_MS);
  return {
    backends,
    waiting,
    follower,
    mistakes: () => follower.mistakes,
    bus,
    async stop() {
      clearInterval(timer);
      await bus.close();
    },
  };
}
