/** The pools of the models that a worker runs, which may come and go. */
import type { BackendConfig, ModelConfig } from "../models/catalog.ts";
import type { BackendPool, PoolBackend } from "../upstream/pool.ts";

/** Opens the pool of a model. */
export type OpenPool<Backend extends PoolBackend> = (
  id: string,
  backends: readonly BackendConfig[],
) => BackendPool<Backend>;

interface Entry<Backend extends PoolBackend> {
  readonly backends: readonly BackendConfig[];
  /** Null until the first request for it. */
  pool: BackendPool<Backend> | null;
}

/** A model with its backends. */
export interface ModelPool<Backend extends PoolBackend> extends Entry<Backend> {
  readonly id: string;
}

/** The pools of a worker: each is opened by its first request. */
export class ModelPools<Backend extends PoolBackend> {
  readonly #open: OpenPool<Backend>;
  readonly #entries = new Map<string, Entry<Backend>>();

  constructor(open: OpenPool<Backend>) {
    this.#open = open;
  }

  /** The ids of all models. */
  keys(): MapIterator<string> {
    return this.#entries.keys();
  }

  /** Whether it has a model. */
  has(id: string): boolean {
    return this.#entries.has(id);
  }

  /** The pool of a model; undefined if it has none. */
  get(id: string): BackendPool<Backend> | undefined {
    const entry = this.#entries.get(id);
    if (entry === undefined) return undefined;
    entry.pool ??= this.#open(id, entry.backends);
    return entry.pool;
  }

  /** The pools that are open, by their models. */
  *[Symbol.iterator](): Generator<[string, BackendPool<Backend>]> {
    for (const [id, { pool }] of this.#entries) {
      if (pool !== null) yield [id, pool];
    }
  }

  /** All models with their backends, and their pools as far as they are open. */
  *models(): Generator<ModelPool<Backend>> {
    for (const [id, entry] of this.#entries) yield { id, ...entry };
  }

  /**
   * Has exactly these models from now on. Pools whose backends are the same stay; those
   * of others end what they run.
   */
  follow(
    models: Iterable<Pick<ModelConfig, "id" | "backends">>,
  ): void {
    const gone = new Set(this.#entries.keys());
    for (const { id, backends } of models) {
      gone.delete(id);
      const known = this.#entries.get(id);
      if (known !== undefined && isSame(known.backends, backends)) continue;
      known?.pool?.close();
      this.#entries.set(id, { backends, pool: null });
    }
    for (const id of gone) {
      this.#entries.get(id)?.pool?.close();
      this.#entries.delete(id);
    }
  }

  /** Closes all pools. */
  close(): void {
    for (const [, pool] of this) pool.close();
  }
}

const isSame = (
  one: readonly BackendConfig[],
  other: readonly BackendConfig[],
): boolean =>
  one.length === other.length &&
  one.every(({ name, model }, index) =>
    name === other[index]?.name && model === other[index].model
  );
