/** Shares the event loop among large bodies, and with everything else. */
import { setImmediate } from "node:timers";

/** How an edge reads and parses many large bodies at the same time. */
export const BODY_TURNS = {
  /** Smaller bodies are neither paced nor parsed in turns: they take half a ms. */
  bodyBytesMin: 64 * 1024,
  /** What is read of all large bodies in a turn: a few ms. */
  bytesMax: 4 * 1024 * 1024,
  /** Of those that wait, so many go on in a turn. */
  sourcesMax: 16,
  /** How long other sockets are heard after each turn. */
  restMs: 1,
} as const;

const { bytesMax, sourcesMax, restMs } = BODY_TURNS;

/** What is read: a body, or a connection whose rest is dropped. */
export interface PacedSource {
  pause(): unknown;
  resume(): unknown;
}

/** A source that goes on reading, or a computation that has a turn of its own. */
type Waiting =
  | { type: "source"; source: PacedSource }
  | { type: "computation"; begin: () => void };

/** When turns end, and rests. */
export interface TurnTimers {
  /** Calls back once the microtasks of this turn have run, and so its computation. */
  afterTurn(run: () => void): void;
  /** Calls back after {@link BODY_TURNS.restMs}. Returns what cancels that. */
  afterRest(run: () => void): () => void;
}

const TIMERS: TurnTimers = {
  afterTurn: (run) => void setImmediate(run),
  afterRest(run) {
    const timer = setTimeout(run, restMs);
    return () => clearTimeout(timer);
  },
};

/**
 * Hundreds of large bodies that arrive together keep an edge busy. As long as there is
 * something to read or to compute, Deno (2.9.6) asks the system for news of other
 * sockets only after every 61st turn of its event loop, so replies of Redis and the
 * beats of workers would stay unread for seconds, and callers would get 503. So large
 * bodies are read and parsed in turns with a rest after each, in which Deno waits, and
 * thereby hears of all sockets.
 */
export class Turns {
  readonly #timers: TurnTimers;
  readonly #waiting: Waiting[] = [];
  /** What large bodies have brought in this turn. */
  #bytes = 0;
  /** Whether a turn has begun whose rest is not over. */
  #isTaken = false;
  #endRest: (() => void) | null = null;
  #isClosed = false;

  constructor(timers: TurnTimers = TIMERS) {
    this.#timers = timers;
  }

  /**
   * So many bytes of a source were read. The source is paused if it has to wait for the
   * next turn.
   */
  took(source: PacedSource, bytes: number): void {
    this.#bytes += bytes;
    const mayGoOn = this.#bytes < bytesMax;
    if (mayGoOn && this.#isTaken) return;
    if (!mayGoOn) {
      source.pause();
      this.#waiting.push({ type: "source", source });
    }
    // Once more for each source that is paused: the rest begins after the last one.
    this.#rest();
  }

  /** Resolves when a turn begins in which the caller may compute, alone. */
  next(): Promise<void> {
    const { promise, resolve: begin } = Promise.withResolvers<void>();
    this.#waiting.push({ type: "computation", begin });
    if (!this.#isTaken) this.#begin();
    return promise;
  }

  /** Ends the timers. What waits goes on waiting. */
  close(): void {
    this.#isClosed = true;
    this.#endRest?.();
    this.#endRest = null;
  }

  #rest(): void {
    if (this.#isClosed) return;
    this.#isTaken = true;
    this.#endRest?.();
    this.#endRest = this.#timers.afterRest(() => this.#begin());
  }

  #begin(): void {
    this.#endRest = null;
    this.#bytes = 0;
    this.#isTaken = this.#waiting.length > 0;
    if (!this.#isTaken) return;
    this.#timers.afterTurn(() => this.#rest());
    const [first] = this.#waiting;
    if (first?.type === "computation") {
      this.#waiting.shift();
      return first.begin();
    }
    for (const source of this.#takeSources()) source.resume();
  }

  /** Those at the head of the queue, up to the next computation. */
  #takeSources(): PacedSource[] {
    const sources: PacedSource[] = [];
    for (const next of this.#waiting) {
      if (next.type !== "source" || sources.length === sourcesMax) break;
      sources.push(next.source);
    }
    this.#waiting.splice(0, sources.length);
    return sources;
  }
}
