/**
 * Control records on their way to workers. Everything for one worker travels in
 * one message: acknowledgements wait a moment for others, so that under load one
 * message carries dozens; what repairs or stops something goes at the end of the
 * event-loop turn and takes them along.
 */
import { ControlBatch, type ControlSink } from "@gateway/shared/bus/control";
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
  readonly #d: ControlOutboxDependencies;
  readonly #batches = new Map<string, ControlBatch>();
  #isDueNow = false;
  #isDueSoon = false;

  constructor(dependencies: ControlOutboxDependencies) {
    this.#d = dependencies;
  }

  /** Workers that something is kept for. */
  get size(): number {
    return this.#batches.size;
  }

  /** Takes records for one worker, to be used in this turn only. */
  to(workerId: string): ControlSink {
    const batch = this.#batchOf(workerId);
    return {
      ack: (requestId, attempt, sequence) => {
        batch.ack(requestId, attempt, sequence);
        this.#flushSoon();
      },
      nak: (requestId, attempt, fromSequence) => {
        batch.nak(requestId, attempt, fromSequence);
        this.#flushNow();
      },
      cancel: (requestId, attempt, reason) => {
        batch.cancel(requestId, attempt, reason);
        this.#flushNow();
      },
    };
  }

  #batchOf(workerId: string): ControlBatch {
    let batch = this.#batches.get(workerId);
    if (batch === undefined) {
      const subject = chatControlSubject(workerId);
      batch = new ControlBatch((message) => this.#d.publish(subject, message));
      this.#batches.set(workerId, batch);
    }
    return batch;
  }

  /** Sends everything at the end of this turn. */
  #flushNow(): void {
    if (this.#isDueNow) return;
    this.#isDueNow = true;
    this.#d.schedule(() => {
      this.#isDueNow = false;
      this.#flush();
    });
  }

  /** Sends everything in a moment. */
  #flushSoon(): void {
    if (this.#isDueSoon) return;
    this.#isDueSoon = true;
    this.#d.scheduleSoon(() => {
      this.#isDueSoon = false;
      this.#flush();
    });
  }

  #flush(): void {
    for (const batch of this.#batches.values()) batch.flush();
    // Nothing is kept for a worker that may never be heard of again.
    this.#batches.clear();
  }
}
