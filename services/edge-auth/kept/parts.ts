/** The parts of an edge that keep answers, and how they depend on each other. */
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { subjects } from "@gateway/shared/bus/subjects";
import {
  type KeptStreamOptions,
  NatsKeptLog,
} from "@gateway/shared/kept/log_nats";
import { decodeStopOrder } from "@gateway/shared/kept/stop_order";
import { StreamWatch } from "@gateway/shared/kept/stream_watch";
import type { Catalog } from "@gateway/shared/models/catalog";
import { randomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { Admission } from "../limits/admission.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { AnswerDependencies } from "./handlers.ts";
import { Keeper, type KeeperOptions } from "./keeper.ts";
import { Orphans, type OrphansOptions } from "./orphans.ts";
import { KeptRecords } from "./records.ts";
import { Replays } from "./replays.ts";

/** How answers are kept. */
export interface KeepConfig {
  readonly stream: KeptStreamOptions;
  readonly accountBytesMax: number;
}

/** What keeping answers uses of its edge. */
export interface KeepingOptions extends
  Pick<
    KeeperOptions,
    | "failedRequests"
    | "metrics"
    | "log"
    | "now"
    | "wallNow"
    | "slowMs"
    | "requestTimeoutMs"
    | "streamHeadMs"
  >,
  Pick<OrphansOptions, "onEnded"> {
  readonly admission: Admission;
  readonly keep: KeepConfig;
  readonly bus: BusLink;
  readonly redis: Pick<RedisLink, "command" | "evalScript">;
  readonly limiter: Pick<Limiter, "leases">;
  readonly dispatcher:
    & KeeperOptions["dispatcher"]
    & Pick<Dispatcher, "stopRequest">;
  readonly catalog: Catalog;
  readonly showsCost: boolean;
}

/** What keeps answers at an edge. */
export interface Keeping {
  readonly keeper: Keeper;
  readonly answers: AnswerDependencies;
  readonly orphans: Orphans;
  readonly watch: StreamWatch;
}

/** Makes the parts; none of them does anything yet. */
export function createKeeping(options: KeepingOptions): Keeping {
  const { keep, bus, redis, limiter, log, now } = options;
  const { leases } = limiter;
  const keptLog = new NatsKeptLog(bus);
  const { accountBytesMax, stream } = keep;
  const records = new KeptRecords({ redis, accountBytesMax });
  const watch = new StreamWatch({ keptLog, bus, stream, now, log });
  const isLogReady = () => watch.isReady;
  const replays = new Replays({ ...options, records, keptLog, schedule });
  const keeper = new Keeper({
    ...options,
    records,
    replays,
    randomBytes,
    isLogReady,
    isLogThere: () => watch.isThere,
    releaseLease: (id) => void leases.release(id),
  });
  const { onEnded } = options;
  const orphans = new Orphans({
    records,
    keptLog,
    leases,
    running: () => keeper.running,
    isLogReady,
    now,
    log,
    ...onEnded && { onEnded },
  });
  const answers = { replays, records, keptLog, bus, log };
  return { keeper, answers, orphans, watch };
}

/**
 * Starts what keeping does without being asked. The returned function ends it, once no
 * request runs any more.
 */
export async function startKeeping(
  { orphans, watch }: Keeping,
  { bus, dispatcher }: Pick<KeepingOptions, "bus" | "dispatcher">,
): Promise<() => Promise<void>> {
  bus.subscribe(subjects.stopKept, ({ data }) => {
    const order = decodeStopOrder(data);
    if (order === null) return;
    dispatcher.stopRequest(order.requestId, order.account);
  });
  await watch.start();
  orphans.start();
  return async () => {
    await orphans.stop();
    await watch.stop();
  };
}

function schedule(run: () => void, waitMs: number): () => void {
  const timer = setTimeout(run, waitMs);
  return () => clearTimeout(timer);
}
