/**
 * The log of kept answers in JetStream, the durable log of the bus: one stream with a
 * subject for each request. What it needs of a server, 2.9 has.
 */
import {
  DiscardPolicy,
  JetStreamApiError,
  type JetStreamManager,
  jetstreamManager,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
} from "@nats-io/jetstream";
import type { BusLink } from "../bus/link_nats.ts";
import { subjects } from "../bus/subjects.ts";
import { monotonicNow } from "../process/clock.ts";
import { Appends, type AppendsOptions } from "./appends.ts";
import { KEPT_LIMITS } from "./limits.ts";
import {
  KeptLogError,
  type KeptLogReader,
  type KeptLogWriter,
  type LogEntry,
  type LogFailure,
} from "./log.ts";
import { failureOfCode } from "./log_errors.ts";

/** The name of the stream of JetStream that has all kept answers. */
export const KEPT_STREAM = "gateway_kept";

const NANOS_PER_MS = 1_000_000;
/** Fewer, if the servers are fewer, or some are away while the stream is made. */
const REPLICAS_MOST = 3;
// Codes of errors of JetStream.
/** No cluster, no suitable peers, not enough of them. */
const TOO_FEW_SERVERS = [10_074, 10_005, 10_023];
/** There is a stream of this name with another configuration. */
const NAME_TAKEN = 10_058;

/** Where the stream of kept answers is stored, and how much and how long. */
export interface KeptStreamOptions {
  readonly storage: "file" | "memory";
  readonly bytesMax: number;
  /** How long an entry is kept at most. */
  readonly ageMsMax: number;
}

type Link = Pick<BusLink, "client"> & AppendsOptions["link"];

/** What the client of JetStream gives for one connection to the bus. */
interface Session {
  readonly connection: BusLink["client"];
  readonly manager: JetStreamManager;
}

/** The log in the JetStream that a link reaches. */
export class NatsKeptLog implements KeptLogReader, KeptLogWriter {
  readonly #link: Link;
  readonly #appends: Appends;
  #session: Session | null = null;
  /** How many readers have the entries of their request announced. */
  #watched = 0;

  constructor(link: Link) {
    this.#link = link;
    this.#appends = new Appends({ link, schedule, now: monotonicNow });
  }

  /**
   * Makes the stream, or changes its bounds. Throws a {@link KeptLogError} without
   * JetStream, or if there is no room for this many bytes.
   */
  async prepare(options: KeptStreamOptions): Promise<void> {
    for (let replicas = REPLICAS_MOST; replicas > 0; replicas -= 1) {
      const config = configOf(options, replicas);
      try {
        await this.#run((manager) => put(manager, config));
        return;
      } catch (error) {
        if (replicas === 1 || !lacksServers(error)) throw error;
      }
    }
  }

  append(
    requestId: string,
    bytes: Uint8Array,
    lastSequence: number,
  ): Promise<number> {
    return this.#appends.append(requestId, bytes, lastSequence);
  }

  next(requestId: string, fromSequence: number): Promise<LogEntry | null> {
    const next_by_subj = subjects.kept(requestId);
    return this.#run(async (manager) => {
      const query = { seq: fromSequence, next_by_subj };
      const found = await manager.direct.getMessage(KEPT_STREAM, query);
      return found && { sequence: found.seq, bytes: found.data };
    });
  }

  nextOfLeader(
    requestId: string,
    fromSequence: number,
  ): Promise<LogEntry | null> {
    const next_by_subj = subjects.kept(requestId);
    return this.#run(async (manager) => {
      const query = { seq: fromSequence, next_by_subj };
      const found = await manager.streams.getMessage(KEPT_STREAM, query);
      return found && { sequence: found.seq, bytes: found.data };
    });
  }

  last(requestId: string): Promise<LogEntry | null> {
    const last_by_subj = subjects.kept(requestId);
    return this.#run(async (manager) => {
      const query = { last_by_subj };
      const found = await manager.streams.getMessage(KEPT_STREAM, query);
      return found && { sequence: found.seq, bytes: found.data };
    });
  }

  async remove(requestId: string): Promise<void> {
    const filter = subjects.kept(requestId);
    await this.#run((manager) =>
      manager.streams.purge(KEPT_STREAM, { filter })
    );
  }

  watch(requestId: string, onEntry: () => void): () => void {
    if (this.#watched >= KEPT_LIMITS.watchedMax) return () => {};
    this.#watched += 1;
    const subject = subjects.kept(requestId);
    const subscription = this.#link.subscribe(subject, () => onEntry());
    return () => {
      this.#watched -= 1;
      void subscription.drain();
    };
  }

  async #run<T>(work: (manager: JetStreamManager) => Promise<T>): Promise<T> {
    try {
      return await work(await this.#open());
    } catch (error) {
      throw new KeptLogError(reasonOf(error), error);
    }
  }

  async #open(): Promise<JetStreamManager> {
    const connection = this.#link.client;
    if (this.#session?.connection === connection) return this.#session.manager;
    const manager = await jetstreamManager(connection, {
      timeout: KEPT_LIMITS.callMs,
      checkAPI: false,
    });
    this.#session = { connection, manager };
    return manager;
  }
}

function configOf(
  { storage, bytesMax, ageMsMax }: KeptStreamOptions,
  replicas: number,
): Partial<StreamConfig> & { name: string } {
  return {
    name: KEPT_STREAM,
    subjects: [subjects.allKept],
    retention: RetentionPolicy.Limits,
    // The newest is refused: the oldest may be what somebody still reads.
    discard: DiscardPolicy.New,
    storage: storage === "file" ? StorageType.File : StorageType.Memory,
    max_bytes: bytesMax,
    max_age: ageMsMax * NANOS_PER_MS,
    num_replicas: replicas,
    allow_direct: true,
  };
}

async function put(
  manager: JetStreamManager,
  config: Partial<StreamConfig> & { name: string },
): Promise<void> {
  try {
    await manager.streams.add(config);
  } catch (error) {
    const isThere = error instanceof JetStreamApiError &&
      error.code === NAME_TAKEN;
    if (!isThere) throw error;
    const { max_bytes, max_age, num_replicas } = config;
    await manager.streams.update(KEPT_STREAM, {
      ...max_bytes !== undefined && { max_bytes },
      ...max_age !== undefined && { max_age },
      ...num_replicas !== undefined && { num_replicas },
    });
  }
}

/** There are fewer servers than replicas. Others keep what the stream has. */
const lacksServers = (error: unknown): boolean =>
  error instanceof KeptLogError && error.cause instanceof JetStreamApiError &&
  TOO_FEW_SERVERS.includes(error.cause.code);

const reasonOf = (error: unknown): LogFailure =>
  error instanceof JetStreamApiError
    ? failureOfCode(error.code)
    : "unavailable";

function schedule(run: () => void, waitMs: number): () => void {
  const timer = setTimeout(run, waitMs);
  return () => clearTimeout(timer);
}
