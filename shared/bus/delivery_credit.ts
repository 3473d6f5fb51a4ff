import type { StreamLimits } from "../limits.ts";
import { SequenceRing } from "./sequence_ring.ts";

/**
 * What was handed on, what the client has taken of it, and when that is worth an
 * acknowledgement: after `ackBytes` or `ackFrames`. Bytes include frame headers,
 * as in the sender's window.
 */
export class DeliveryCredit {
  readonly #limits: StreamLimits;
  /** For each frame that the client has not taken: its bytes. */
  readonly #frameBytes = new SequenceRing<number>();
  #undeliveredBytes = 0;
  #unackedBytes = 0;
  #deliveredSequence = 0;
  #ackedSequence = 0;

  constructor(limits: StreamLimits) {
    this.#limits = limits;
  }

  get undeliveredBytes(): number {
    return this.#undeliveredBytes;
  }

  /** Counts the next frame. False when that is more than the window allows. */
  add(frameBytes: number): boolean {
    this.#frameBytes.push(frameBytes);
    this.#undeliveredBytes += frameBytes;
    return this.#undeliveredBytes <= this.#limits.windowBytes;
  }

  /**
   * The client has taken everything up to and with this frame. True when an
   * acknowledgement is due. Throws for a frame that was never handed on.
   */
  take(sequence: number): boolean {
    if (sequence <= this.#deliveredSequence) return false;
    if (sequence >= this.#frameBytes.next) {
      throw new Error(`Frame ${sequence} was not handed on yet`);
    }
    while (this.#frameBytes.first <= sequence) {
      const bytes = this.#frameBytes.shift() ?? 0;
      this.#undeliveredBytes -= bytes;
      this.#unackedBytes += bytes;
    }
    this.#deliveredSequence = sequence;
    return this.#unackedBytes >= this.#limits.ackBytes ||
      sequence - this.#ackedSequence >= this.#limits.ackFrames;
  }

  /** The sequence number to acknowledge now, due or not. */
  acknowledge(): number {
    this.#unackedBytes = 0;
    this.#ackedSequence = this.#deliveredSequence;
    return this.#ackedSequence;
  }
}
