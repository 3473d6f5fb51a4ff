/** When an edge beats, and what it tells of the requests that wait there. */
import { type EdgeWaiting, NOTHING_WAITS } from "@gateway/shared/bus/waiting";

/**
 * When requests begin to wait, an edge tells it before its next beat is due, but no
 * sooner than this after the last one: all workers hear each beat.
 */
const EARLY_MS = 250;

/** What beats are made of, and who sends them. */
export interface EdgeBeatsOptions {
  readonly now: () => number;
  readonly queue: { readonly length: number; lanes(): EdgeWaiting };
  readonly bus: { beat(waiting: EdgeWaiting): void };
}

/** Tells workers that this edge lives, in time and when requests begin to wait. */
export class EdgeBeats {
  readonly #options: EdgeBeatsOptions;
  #beatAtMs = -Infinity;
  #hasTold = false;

  constructor(options: EdgeBeatsOptions) {
    this.#options = options;
  }

  /** Tells all workers that this edge is alive. */
  beat(): void {
    const { now, queue, bus } = this.#options;
    this.#beatAtMs = now();
    this.#hasTold = queue.length > 0;
    bus.beat(this.#hasTold ? queue.lanes() : NOTHING_WAITS);
  }

  /** Advances time: tells soon that requests have begun to wait. */
  tick(): void {
    const { now, queue } = this.#options;
    if (queue.length === 0) this.#hasTold = false;
    else if (!this.#hasTold && now() - this.#beatAtMs >= EARLY_MS) {
      this.beat();
    }
  }
}
