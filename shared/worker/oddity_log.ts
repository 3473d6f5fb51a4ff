/** Tells operators what is odd about the answers of their model servers. */
import type { MonotonicNow } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import type { Oddity, OddityReport } from "../upstream/oddities.ts";

/** A backend writes at most one line in this time. */
const LINE_EVERY_MS = 60_000;

/** What was odd about the answers of one backend since its last line. */
interface Counts {
  lastLineAtMs: number;
  byKind: Map<Oddity, number>;
}

/** Writes a line at the first oddity of a backend, then at most one a minute. */
export class OddityLog {
  readonly #log: Pick<Log, "info">;
  readonly #now: MonotonicNow;
  readonly #backends = new Map<string, Counts>();

  /** `now` tells when a minute is over. */
  constructor(log: Pick<Log, "info">, now: MonotonicNow) {
    this.#log = log;
    this.#now = now;
  }

  /** Something was undone or skipped in an answer of a backend of `model`. */
  note(model: string, { backend, oddity, count }: OddityReport): void {
    const name = `${model} ${backend}`;
    const { lastLineAtMs, byKind } = this.#backends.get(name) ??
      { lastLineAtMs: -Infinity, byKind: new Map<Oddity, number>() };
    byKind.set(oddity, (byKind.get(oddity) ?? 0) + count);
    const nowMs = this.#now();
    if (nowMs - lastLineAtMs < LINE_EVERY_MS) {
      this.#backends.set(name, { lastLineAtMs, byKind });
      return;
    }
    this.#backends.set(name, { lastLineAtMs: nowMs, byKind: new Map() });
    this.#log.info("backend_oddities", {
      model,
      backend,
      ...Object.fromEntries(byKind),
      message: "Answers of this model server were repaired, or read in part",
    });
  }
}
