/**
 * Control records on their way to workers. Everything for one worker travels in
 * one message: acknowledgements wait a moment for others, so that under load one
 * message carries dozens; what repairs or stops something goes at the end of the
 * event-loop turn and takes them along.
 */
import {
  type CancelReason,
  ControlBatch,
  type ControlSink,
} from "@gateway/shared/bus/control";
import { chatControlSubject } from "@gateway/shared/bus/subjects";

export interface ControlOutboxDependencies {
  /** Sends one message. Must not throw. */
  publish: (subject: string, payload: Uint8Array) => void;
  /** Runs `flush` at the end of the turn, `queueMicrotask` in the service. */
  schedule: (flush: () => void) => void;
  /** Runs `flush` within {@link ACK_WAIT_MS}. */
  scheduleSoon: (flush: () => void) => void;
}

/** How long an acknowledgement may wait. A window of 256 KiB per 2 ms is 128 MB/s. */
export const ACK_WAIT_MS = 2;

export class ControlOutbox {
  readonly #dependencies: ControlOutboxDependencies;
  readonly #sinks = new Map<string, WorkerSink>();
  #isScheduled = false;
  #isScheduledSoon = false;

  constructor(dependencies: ControlOutboxDependencies) {
    this.#dependencies = dependencies;
  }

  /** Takes records for one worker, to be used in this turn only. */
  to(workerId: string): ControlSink {
    const known = this.#sinks.get(workerId);
    if (known !== undefined) return known;
    const subject = chatControlSubject(workerId);
    const sink = new WorkerSink(
      (message) => this.#dependencies.publish(subject, message),
      this,
    );
    this.#sinks.set(workerId, sink);
    return sink;
  }

  /** Workers that something is kept for. */
  get size(): number {
    return this.#sinks.size;
  }

  /** Sends everything at the end of this turn. */
  flushNow(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#dependencies.schedule(() => {
      this.#isScheduled = false;
      this.#flush();
    });
  }

  /** Sends everything in a moment. */
  flushSoon(): void {
    if (this.#isScheduledSoon) return;
    this.#isScheduledSoon = true;
    this.#dependencies.scheduleSoon(() => {
      this.#isScheduledSoon = false;
      this.#flush();
    });
  }

  #flush(): void {
    for (const sink of this.#sinks.values()) sink.flush();
    // Nothing is kept for a worker that may never be heard of again.
    this.#sinks.clear();
  }
}

/** The records for one worker. */
class WorkerSink implements ControlSink {
  readonly #batch: ControlBatch;
  readonly #outbox: ControlOutbox;

  constructor(send: (message: Uint8Array) => void, outbox: ControlOutbox) {
    this.#batch = new ControlBatch(send);
    this.#outbox = outbox;
  }

  ack(requestId: string, attempt: number, sequence: number): void {
    this.#batch.ack(requestId, attempt, sequence);
    this.#outbox.flushSoon();
  }

  nak(requestId: string, attempt: number, fromSequence: number): void {
    this.#batch.nak(requestId, attempt, fromSequence);
    this.#outbox.flushNow();
  }

  cancel(requestId: string, attempt: number, reason: CancelReason): void {
    this.#batch.cancel(requestId, attempt, reason);
    this.#outbox.flushNow();
  }

  flush(): void {
    this.#batch.flush();
  }
}
