/**
 * Control records on their way to workers. Everything for one worker from one
 * event-loop turn travels in one message: under load that is one message for
 * dozens of acknowledgements.
 */
import { ControlBatch, type ControlSink } from "@gateway/shared/bus/control";
import { chatControlSubject } from "@gateway/shared/bus/subjects";

export interface ControlOutboxDependencies {
  /** Sends one message. Must not throw. */
  publish: (subject: string, payload: Uint8Array) => void;
  /** Runs `flush` at the end of the turn, `queueMicrotask` in the service. */
  schedule: (flush: () => void) => void;
}

export class ControlOutbox {
  readonly #dependencies: ControlOutboxDependencies;
  readonly #batches = new Map<string, ControlBatch>();
  /** Workers whose batch is dropped when it has gone out. */
  readonly #leaving = new Set<string>();
  #isScheduled = false;

  constructor(dependencies: ControlOutboxDependencies) {
    this.#dependencies = dependencies;
  }

  /** Takes records for one worker. */
  to(workerId: string): ControlSink {
    this.#scheduleFlush();
    const known = this.#batches.get(workerId);
    if (known !== undefined) return known;
    const subject = chatControlSubject(workerId);
    const batch = new ControlBatch((message) =>
      this.#dependencies.publish(subject, message)
    );
    this.#batches.set(workerId, batch);
    return batch;
  }

  /** Workers that something is kept for. */
  get size(): number {
    return this.#batches.size;
  }

  /** Sends what there is for a worker that is gone, it may only have been frozen, and keeps nothing. */
  forget(workerId: string): void {
    this.#leaving.add(workerId);
    this.#scheduleFlush();
  }

  #scheduleFlush(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#dependencies.schedule(() => {
      this.#isScheduled = false;
      for (const batch of this.#batches.values()) batch.flush();
      for (const workerId of this.#leaving) this.#batches.delete(workerId);
      this.#leaving.clear();
    });
  }
}
