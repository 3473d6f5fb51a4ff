/**
 * The use of all limited servers and keys, as this worker counts it and the others
 * tell.
 */
import { createHash } from "node:crypto";
import type { MonotonicNow } from "../process/clock.ts";
import { KeyUse } from "./key_use.ts";
import { OtherWorkers } from "./others.ts";
import { Proofs } from "./proofs.ts";
import type { UseReport } from "./report.ts";

const ID_CHARS = 22;

/** What is limited: a model at a server or, without one, all that the server has. */
export interface Limited {
  readonly baseUrl: string;
  readonly model: string | null;
  /** The variable with the key; null: the server with all its keys. */
  readonly variable: string | null;
}

/**
 * The name of a limited server or key among workers: a digest, because addresses are
 * nobody's business.
 */
export function idOf({ baseUrl, model, variable }: Limited): string {
  return createHash("sha256").update(JSON.stringify([baseUrl, model, variable]))
    .digest("base64url").slice(0, ID_CHARS);
}

/** The limited servers and keys of a worker. Empty until the first is asked for. */
export class UseTable {
  readonly others = new OtherWorkers();
  readonly proofs: Proofs;
  readonly #now: MonotonicNow;
  /** By their ids. Those of servers that were removed stay: they are few. */
  readonly #uses = new Map<string, KeyUse>();
  #onChange: () => void = () => {};

  constructor(now: MonotonicNow) {
    this.#now = now;
    this.proofs = new Proofs(now);
  }

  /** Whether there is nothing to count and to tell. */
  get isEmpty(): boolean {
    return this.#uses.size === 0 && this.proofs.isEmpty;
  }

  /** `listener` is called when there is something to tell. */
  listen(listener: () => void): void {
    this.#onChange = listener;
  }

  /** The use of a server or a key, the same one at every call. */
  useOf(limited: Limited): KeyUse {
    const id = idOf(limited);
    const existing = this.#uses.get(id);
    if (existing !== undefined) return existing;
    const use = new KeyUse({
      id,
      now: this.#now,
      others: this.others,
      onChange: () => this.#onChange(),
    });
    this.#uses.set(id, use);
    return use;
  }

  /** What the others must know. */
  uses(): UseReport["uses"] {
    const nowMs = this.#now();
    return [...this.#uses.values()].map((use) => use.report(nowMs))
      .filter((use) => use !== null);
  }

  /** Takes what another worker tells. Returns whether it was unknown. */
  hear(workerId: string, report: UseReport): boolean {
    this.proofs.add(report.proved);
    return this.others.hear(workerId, report, this.#now());
  }

  /** Forgets what others no longer use. */
  tick(): void {
    this.others.tick(this.#now());
  }
}
