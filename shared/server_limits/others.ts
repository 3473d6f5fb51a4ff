/** What the other workers have told of their use of limited servers and keys. */
import type { UseEntry, UseReport } from "./report.ts";
import type { Use } from "./rule.ts";

/** A worker tells at least this often. */
export const TELL_MS = 500;
/** A worker that is silent for this long is dead: what it ran has ended. */
export const SILENT_MS = 2_000;
/** Its requests and tokens count for the rest of the minute. */
const KEEP_MS = 61_000;

interface HeardUse extends UseEntry {
  readonly heardAtMs: number;
}

interface Other {
  heardAtMs: number;
  isLeaving: boolean;
  uses: ReadonlyMap<string, HeardUse>;
}

/** What all others together use, and what their servers have told them. */
export interface OthersUse extends Use {
  readonly nextFreeMs: number;
  /** How long it must not be used; 0: it may be used. */
  readonly coolingMs: number;
  readonly isRefused: boolean;
  readonly deadMs: number;
}

/** The other workers by their ids. */
export class OtherWorkers {
  readonly #others = new Map<string, Other>();

  /** How many others take requests. */
  countAt(nowMs: number): number {
    let count = 0;
    for (const other of this.#others.values()) {
      if (isAlive(other, nowMs)) count += 1;
    }
    return count;
  }

  /** Takes what a worker tells. Returns whether it was unknown. */
  hear(workerId: string, report: UseReport, nowMs: number): boolean {
    const before = this.#others.get(workerId);
    const { isLeaving, uses: list } = report;
    const uses = new Map(
      list.map((each) => [each.id, { ...each, heardAtMs: nowMs }]),
    );
    this.#others.set(workerId, { heardAtMs: nowMs, isLeaving, uses });
    return before === undefined || !isAlive(before, nowMs);
  }

  /** Forgets what no longer counts. */
  tick(nowMs: number): void {
    for (const [id, { heardAtMs, uses }] of this.#others) {
      const isOver = uses.values().every(({ coolingMs, deadMs }) =>
        nowMs - heardAtMs >= Math.max(KEEP_MS, coolingMs, deadMs)
      );
      if (isOver && nowMs - heardAtMs >= SILENT_MS) this.#others.delete(id);
    }
  }

  /** What they use of a server or a key. */
  useOf(id: string, nowMs: number): OthersUse {
    const sum = {
      inFlight: 0,
      requests: 0,
      tokens: 0,
      nextFreeMs: Infinity,
      coolingMs: 0,
      isRefused: false,
      deadMs: 0,
    };
    for (const other of this.#others.values()) {
      const use = other.uses.get(id);
      if (use === undefined) continue;
      const ageMs = nowMs - use.heardAtMs;
      if (isAlive(other, nowMs)) sum.inFlight += use.inFlight;
      if (ageMs < KEEP_MS) {
        sum.requests += use.requests;
        sum.tokens += use.tokens;
        if (use.requests + use.tokens > 0) {
          const freeMs = Math.max(0, use.nextFreeMs - ageMs);
          sum.nextFreeMs = Math.min(sum.nextFreeMs, freeMs);
        }
      }
      const coolingMs = use.coolingMs - ageMs;
      if (coolingMs > sum.coolingMs) {
        sum.coolingMs = coolingMs;
        sum.isRefused = use.isRefused;
      }
      sum.deadMs = Math.max(sum.deadMs, use.deadMs - ageMs);
    }
    return sum;
  }
}

const isAlive = ({ heardAtMs, isLeaving }: Other, nowMs: number): boolean =>
  !isLeaving && nowMs - heardAtMs < SILENT_MS;
