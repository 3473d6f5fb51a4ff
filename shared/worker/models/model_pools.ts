/** The pools of the models that a worker runs, which may come and go. */
import type { BackendConfig, ModelConfig } from "../../models/catalog.ts";
import type { MonotonicNow } from "../../process/clock.ts";
import type { BackendPool, PoolBackend } from "../../upstream/pool.ts";
import { isCounted } from "../server_limits/keyrings.ts";

/**
 * How long a model that was taken out of the list still runs: for edges that have not
 * read the new list yet, and for uploads that began before, which may take 110 seconds.
 */
export const LEAVING_MS = 120_000;

/** What the pools of a worker need. */
export interface ModelPoolsOptions<Backend extends PoolBackend> {
  /** Opens the pool of a model. */
  open(id: string, backends: readonly BackendConfig[]): BackendPool<Backend>;
  /** Equal for backends that are the same in all that counts, their keys included. */
  identify(backend: BackendConfig): string;
  now: MonotonicNow;
}

interface Entry<Backend extends PoolBackend> {
  readonly backends: readonly BackendConfig[];
  readonly identity: string;
  /** Null until the first request for it. */
  pool: BackendPool<Backend> | null;
  /** When it ends; Infinity while its model is in the list. */
  endsAtMs: number;
}

/** A model with its backends, and its pool if that is open. */
export interface ModelPool<Backend extends PoolBackend>
  extends Pick<Entry<Backend>, "backends" | "pool"> {
  readonly id: string;
}

/**
 * The pools of a worker: each is opened by its first request, but those with limits at
 * once, because they follow what other workers use.
 */
export class ModelPools<Backend extends PoolBackend> {
  readonly #options: ModelPoolsOptions<Backend>;
  readonly #entries = new Map<string, Entry<Backend>>();

  constructor(options: ModelPoolsOptions<Backend>) {
    this.#options = options;
  }

  /** The ids of all models. */
  keys(): MapIterator<string> {
    return this.#entries.keys();
  }

  /** Whether it has a model. */
  has(id: string): boolean {
    return this.#entries.has(id);
  }

  /** The ids of the models that are not in the list any more. */
  leaving(): readonly string[] {
    return [...this.#entries].filter(([, { endsAtMs }]) => endsAtMs < Infinity)
      .map(([id]) => id);
  }

  /** The pool of a model; undefined if it has none. */
  get(id: string): BackendPool<Backend> | undefined {
    const entry = this.#entries.get(id);
    if (entry === undefined) return undefined;
    entry.pool ??= this.#options.open(id, entry.backends);
    return entry.pool;
  }

  /** The pools that are open, by their models. */
  *[Symbol.iterator](): Generator<[string, BackendPool<Backend>]> {
    for (const [id, { pool }] of this.#entries) {
      if (pool !== null) yield [id, pool];
    }
  }

  /** The models of the list with their backends, and their pools if they are open. */
  *models(): Generator<ModelPool<Backend>> {
    for (const [id, { backends, pool, endsAtMs }] of this.#entries) {
      if (endsAtMs === Infinity) yield { id, backends, pool };
    }
  }

  /**
   * Has exactly these models from now on and, if `keepsGone`, the others for
   * {@link LEAVING_MS}. Pools whose backends are the same stay; closed ones end what
   * they run.
   */
  follow(
    models: Iterable<Pick<ModelConfig, "id" | "backends">>,
    { keepsGone }: { keepsGone: boolean } = { keepsGone: false },
  ): void {
    const gone = new Set(this.#entries.keys());
    for (const { id, backends } of models) {
      gone.delete(id);
      this.#enter(id, backends);
    }
    const endsAtMs = keepsGone ? this.#options.now() + LEAVING_MS : -Infinity;
    for (const id of gone) {
      const entry = this.#entries.get(id);
      // One that leaves already keeps its time.
      if (entry?.endsAtMs === Infinity) entry.endsAtMs = endsAtMs;
    }
    this.tick();
  }

  #enter(id: string, backends: readonly BackendConfig[]): void {
    const { identify } = this.#options;
    const identity = backends.map((each) => identify(each)).join("\n");
    const entry = this.#entries.get(id);
    const isSame = entry?.identity === identity;
    if (!isSame) entry?.pool?.close();
    const pool = isSame
      ? entry.pool
      : backends.some(isCounted)
      ? this.#options.open(id, backends)
      : null;
    this.#entries.set(id, { backends, identity, pool, endsAtMs: Infinity });
  }

  /** Advances time: ends the models that were kept for long enough. */
  tick(): void {
    const nowMs = this.#options.now();
    for (const [id, { endsAtMs, pool }] of this.#entries) {
      if (endsAtMs > nowMs) continue;
      pool?.close();
      this.#entries.delete(id);
    }
  }

  /** Closes all pools. */
  close(): void {
    for (const [, pool] of this) pool.close();
  }
}
