/** What the runs of an edge say over the bus: jobs, their bodies, control records. */
import {
  CONTROL_PROBE,
  type ControlRecord,
  encodeControl,
} from "@gateway/shared/bus/stream/control";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { Outbox } from "@gateway/shared/bus/outbox";
import { subjects, type WorkerFamily } from "@gateway/shared/bus/subjects";
import {
  type EdgeWaiting,
  encodeEdgeBeat,
  encodeReturn,
} from "@gateway/shared/bus/waiting";
import type { Log } from "@gateway/shared/process/log";

/** What it needs of the link to NATS. */
export type EdgeLink = Pick<
  BusLink,
  "isConnected" | "flowingSinceMs" | "receivedAtMs" | "publish" | "request"
>;

/** How an edge speaks on the bus. */
export interface EdgeBusOptions {
  bus: EdgeLink;
  edgeId: string;
  /** Calls `flush` a moment later, with what was added meanwhile. */
  scheduleSoon: (flush: () => void) => void;
  log: Pick<Log, "debug">;
}

/**
 * A control record waits this long for others, so that under load one message carries
 * dozens.
 */
export const CONTROL_WAIT_MS = 10;

const PROBE_TIMEOUT_MS = 300;
/**
 * A worker has this long to acknowledge a piece of a large request: on a busy machine,
 * it takes seconds. A lost worker is noticed by its beats.
 */
const PIECE_TIMEOUT_MS = 10_000;

/** The bus, as the runs of one edge use it. */
export class EdgeBus {
  readonly #link: EdgeLink;
  readonly #edgeId: string;
  readonly #log: Pick<Log, "debug">;
  /** Control records to be sent, by the subject of their worker. */
  readonly #records: Outbox<ControlRecord>;

  constructor({ bus, edgeId, scheduleSoon, log }: EdgeBusOptions) {
    this.#link = bus;
    this.#edgeId = edgeId;
    this.#log = log;
    this.#records = new Outbox(scheduleSoon, (subject, records) => {
      this.#publish(subject, encodeControl(records));
    });
  }

  /** Whether there is a connection to NATS now. */
  get isConnected(): boolean {
    return this.#link.isConnected;
  }

  /** Workers to which control records wait to be sent. */
  get receiversWaiting(): number {
    return this.#records.size;
  }

  /** Sends a job; its frames come back to this edge. False if the bus is down. */
  sendJob(
    subject: string,
    job: Uint8Array,
    { requestId, offerNumber }: { requestId: string; offerNumber: number },
  ): boolean {
    const reply = subjects.edgeStream(this.#edgeId, requestId, offerNumber);
    return this.#publish(subject, job, reply);
  }

  /** Sends a piece of a body. Resolves when the worker has acknowledged it. */
  sendPiece(subject: string, piece: Uint8Array): Promise<unknown> {
    return this.#link.request(subject, piece, { timeoutMs: PIECE_TIMEOUT_MS });
  }

  /** Tells a worker something about a stream, together with what follows soon. */
  control(family: WorkerFamily, workerId: string, record: ControlRecord): void {
    this.#records.add(subjects.control(family, workerId), record);
  }

  /** Resolves if the worker is alive, rejects if it has no subscriber or is silent. */
  probe(family: WorkerFamily, workerId: string): Promise<unknown> {
    const subject = subjects.control(family, workerId);
    const options = { timeoutMs: PROBE_TIMEOUT_MS };
    return this.#link.request(subject, CONTROL_PROBE, options);
  }

  /** Tells all workers that this edge is alive, and what waits here. */
  beat(waiting: EdgeWaiting): void {
    if (!this.isConnected) return;
    const subject = subjects.edgeBeat(this.#edgeId);
    this.#link.publish(subject, encodeEdgeBeat(waiting));
  }

  /** Tells a worker that this edge does not need the slot that is kept for it. */
  returnTurn(family: WorkerFamily, workerId: string): void {
    const subject = subjects.turnReturns(family, workerId);
    this.#publish(subject, encodeReturn(this.#edgeId));
  }

  /**
   * Whether the bus was down at some time since then, so that a message may be lost.
   */
  hasFailedSince(ms: number): boolean {
    const { flowingSinceMs } = this.#link;
    return flowingSinceMs === null || flowingSinceMs > ms;
  }

  /** Whether the bus, though connected, has delivered nothing at all since then. */
  isSilentSince(ms: number): boolean {
    return this.isConnected && this.#link.receivedAtMs < ms;
  }

  /** False if the bus cannot send it now. */
  #publish(subject: string, payload: Uint8Array, reply?: string): boolean {
    try {
      const options = reply === undefined ? {} : { reply };
      this.#link.publish(subject, payload, options);
      return true;
    } catch (error) {
      // Acknowledgements are repeated and jobs wait; the bus link logs its own state.
      this.#log.debug("publish_failed", { subject, error });
      return false;
    }
  }
}
