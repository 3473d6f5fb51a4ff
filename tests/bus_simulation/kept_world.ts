/**
 * A log of kept answers without a server, and a clock that a test advances. What is
 * under way in the log may get lost, on the way there or back, and its copies lag.
 */
import {
  KeptLogError,
  type KeptLogReader,
  type KeptLogWriter,
  type LogEntry,
} from "@gateway/shared/kept/log";

/** Turns of the event loop that a step of the code under test takes at most. */
const TURNS = 40;
const DELAY_MS_MAX = 30;
const LAG_MS_MAX = 200;

/** What happens, in the order of its time. */
export class KeptWorld {
  nowMs = 0;
  readonly random: () => number;
  readonly #events: { atMs: number; order: number; run: () => void }[] = [];
  #order = 0;

  constructor(random: () => number) {
    this.random = random;
  }

  /** Runs a function later, unless what it returns is called before. */
  readonly schedule = (run: () => void, waitMs: number): () => void => {
    const event = { atMs: this.nowMs + waitMs, order: this.#order, run };
    this.#order += 1;
    const at = this.#events.findIndex(({ atMs }) => atMs > event.atMs);
    if (at < 0) this.#events.push(event);
    else this.#events.splice(at, 0, event);
    return () => {
      const index = this.#events.indexOf(event);
      if (index >= 0) this.#events.splice(index, 1);
    };
  };

  /** Resolves after a time of up to this. */
  delay(msMax: number): Promise<void> {
    const waitMs = this.random() * msMax;
    return new Promise((resolve) => this.schedule(resolve, waitMs));
  }

  /** Whether something that has this share happens now. */
  happens(share: number): boolean {
    return this.random() < share;
  }

  /** Lets everything happen until nothing is left, or this time. */
  async play(untilMs: number): Promise<void> {
    for (;;) {
      for (let turn = 0; turn < TURNS; turn += 1) await null;
      const next = this.#events.shift();
      if (next === undefined || next.atMs > untilMs) return;
      this.nowMs = next.atMs;
      next.run();
    }
  }
}

interface StoredEntry extends LogEntry {
  /** When the slowest copy has it. */
  readonly everywhereAtMs: number;
}

/** The log of one request, as JetStream keeps it. */
export class SimulatedLog implements KeptLogReader, KeptLogWriter {
  readonly #world: KeptWorld;
  /** The share of calls whose request or reply is lost. */
  readonly #lossShare: number;
  readonly entries: StoredEntry[] = [];
  readonly #watchers = new Set<() => void>();
  #sequence = 0;

  constructor(world: KeptWorld, lossShare: number) {
    this.#world = world;
    this.#lossShare = lossShare;
  }

  append(_id: string, bytes: Uint8Array, last: number): Promise<number> {
    return this.#call(() => {
      // Whoever listens hears of it even if it is refused.
      for (const wake of this.#watchers) {
        if (!this.#world.happens(this.#lossShare)) wake();
      }
      const present = this.entries.at(-1)?.sequence ?? 0;
      if (present !== last) throw new KeptLogError("taken", "another entry");
      // Entries of other requests lie between.
      this.#sequence += 1 + Math.floor(this.#world.random() * 3);
      const everywhereAtMs = this.#world.nowMs +
        this.#world.random() * LAG_MS_MAX;
      const sequence = this.#sequence;
      this.entries.push({ sequence, bytes, everywhereAtMs });
      return sequence;
    });
  }

  /** A copy that lags lacks some entries, even before others that it has. */
  next(_id: string, fromSequence: number): Promise<LogEntry | null> {
    return this.#call(() => {
      const { nowMs } = this.#world;
      const entry = this.entries.find(({ sequence, everywhereAtMs }) =>
        sequence >= fromSequence &&
        (everywhereAtMs <= nowMs || this.#world.happens(0.5))
      );
      return entry ?? null;
    });
  }

  nextOfLeader(_id: string, fromSequence: number): Promise<LogEntry | null> {
    return this.#call(() =>
      this.entries.find(({ sequence }) => sequence >= fromSequence) ?? null
    );
  }

  last(): Promise<LogEntry | null> {
    return this.#call(() => this.entries.at(-1) ?? null);
  }

  remove(): Promise<void> {
    return this.#call(() => {
      this.entries.length = 0;
    });
  }

  watch(_id: string, onEntry: () => void): () => void {
    this.#watchers.add(onEntry);
    return () => this.#watchers.delete(onEntry);
  }

  async #call<T>(work: () => T): Promise<T> {
    await this.#world.delay(DELAY_MS_MAX);
    const lost = () => new KeptLogError("unavailable", "no answer");
    if (this.#world.happens(this.#lossShare)) throw lost();
    const result = work();
    await this.#world.delay(DELAY_MS_MAX);
    if (this.#world.happens(this.#lossShare)) throw lost();
    return result;
  }
}
