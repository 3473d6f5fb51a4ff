/** Shares the event loop among large bodies, and with everything else. */
import { setImmediate } from "node:timers";

/** How an edge reads and parses many large bodies at the same time. */
export const BODY_TURNS = {
  /** Smaller bodies are neither paced nor parsed in turns: they take half a ms. */
  bodyBytesMin: 64 * 1024,
  /** What is read and parsed of all large bodies in a turn: some ms. */
  bytesMax: 4 * 1024 * 1024,
  /** How many of the bodies that wait to be read go on in one turn. */
  sourcesMax: 16,
  /** How long other sockets are heard after each turn. */
  restMs: 1,
  /**
   * How often what is read puts off a rest: this many whole pieces fill a turn, and
   * many small ones must not keep others waiting.
   */
  postponementsMax: 64,
} as const;

const { bytesMax, sourcesMax, restMs, postponementsMax } = BODY_TURNS;

/** What is read: a body, or a connection whose rest is dropped. */
export interface PacedSource {
  pause(): unknown;
  resume(): unknown;
}

/** A source that was paused, or the computation on a body of this many bytes. */
type Waiting =
  | { type: "source"; source: PacedSource }
  | { type: "computation"; bytes: number; begin: () => void };

/** When turns end, and rests. */
export interface TurnTimers {
  /** Calls back once the microtasks of this turn have run, and so its computations. */
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
 * bodies are read and parsed in turns of some megabytes. After each there is a rest, in
 * which Deno waits, and thereby hears of all sockets.
 */
export class Turns {
  readonly #timers: TurnTimers;
  readonly #waiting: Waiting[] = [];
  /** What was read and parsed since the last rest. */
  #bytes = 0;
  /** How often the next rest was put off. */
  #postponements = 0;
  #endRest: (() => void) | null = null;
  #isClosed = false;

  constructor(timers: TurnTimers = TIMERS) {
    this.#timers = timers;
  }

  /**
   * This many bytes of a source were read. If that is enough for this turn, the source
   * is paused until it has its next one.
   */
  took(source: PacedSource, bytes: number): void {
    this.#bytes += bytes;
    if (this.#isFull) {
      source.pause();
      this.#waiting.push({ type: "source", source });
    }
    // The rest begins after the last source of the turn.
    if (this.#endRest !== null) this.#postponements += 1;
    if (this.#postponements <= postponementsMax) this.#rest();
  }

  /** Resolves when the caller may compute something on a body of this many bytes. */
  next(bytes: number): Promise<void> {
    const { promise, resolve: begin } = Promise.withResolvers<void>();
    if (this.#isFull || this.#waiting.length > 0) {
      this.#waiting.push({ type: "computation", bytes, begin });
    } else {
      this.#bytes += bytes;
      this.#restAfterTurn();
      begin();
    }
    return promise;
  }

  /** Ends the timers. What waits goes on waiting. */
  close(): void {
    this.#isClosed = true;
    this.#cancelRest();
  }

  get #isFull(): boolean {
    return this.#bytes >= bytesMax;
  }

  #rest(): void {
    if (this.#isClosed) return;
    this.#cancelRest();
    this.#endRest = this.#timers.afterRest(() => this.#begin());
  }

  /** A rest that began before a computation would be over when that ends. */
  #restAfterTurn(): void {
    this.#cancelRest();
    this.#timers.afterTurn(() => this.#rest());
  }

  #cancelRest(): void {
    this.#endRest?.();
    this.#endRest = null;
  }

  /** Begins a turn with what waits, in its order. */
  #begin(): void {
    this.#endRest = null;
    this.#bytes = 0;
    this.#postponements = 0;
    if (this.#waiting.length === 0) return;
    this.#restAfterTurn();
    let sourceCount = 0;
    while (!this.#isFull && sourceCount < sourcesMax) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      if (next.type === "source") {
        sourceCount += 1;
        next.source.resume();
      } else {
        this.#bytes += next.bytes;
        next.begin();
      }
    }
  }
}
