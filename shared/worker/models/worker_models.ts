/** The models of a worker: what it has of the list, and what runs them. */
import type { WorkerFamily } from "../../bus/subjects.ts";
import type {
  BackendConfig,
  FileContent,
  ModelCatalog,
} from "../../models/catalog.ts";
import type { ServerConfig } from "../../models/servers.ts";
import type { MonotonicNow } from "../../process/clock.ts";
import type { Log } from "../../process/log.ts";
import type { BackendPool, PoolBackend } from "../../upstream/pool.ts";
import type { BackendKeys } from "./backend_keys.ts";
import {
  Discovery,
  type ListingServer,
  withStandIn,
  type WorkerLists,
} from "./discovery.ts";
import { ModelPools } from "./model_pools.ts";

/** What files and environment say of the models of a worker. */
export interface WorkerList {
  /** The models of its family. */
  readonly file: FileContent;
  readonly keys: BackendKeys;
}

/** What the models of a worker need. */
export interface WorkerModelsOptions<Backend extends PoolBackend> {
  /** Has the models from now on. */
  catalog: ModelCatalog;
  family: WorkerFamily;
  /** Opens the pool of a model, with the present keys. */
  openPool(
    id: string,
    backends: readonly BackendConfig[],
    keys: BackendKeys,
  ): BackendPool<Backend>;
  /** Opens a server that is asked which models it has. */
  openServer(server: ServerConfig, keys: BackendKeys): ListingServer;
  now: MonotonicNow;
  /** From 0 to 1, as `Math.random`. */
  random: () => number;
  /** Resolves after `ms`, or rejects if the signal aborts first. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  log: Pick<Log, "info" | "warn" | "debug">;
}

/**
 * Runs the models of the list that it was given last. What a running request has begun
 * to use it uses to its end.
 */
export class WorkerModels<Backend extends PoolBackend> {
  readonly pools: ModelPools<Backend>;
  readonly #options: WorkerModelsOptions<Backend>;
  readonly #discovery: Discovery;
  /** What the latest list says. */
  #file: FileContent;
  #keys: BackendKeys = new Map();
  #isFollowing = false;
  #firstAnswers: Promise<void> = Promise.resolve();

  constructor(options: WorkerModelsOptions<Backend>) {
    this.#options = options;
    const { catalog, openPool, openServer, now } = options;
    this.#file = catalog.file;
    this.pools = new ModelPools({
      open: (id, backends) => openPool(id, backends, this.#keys),
      identify: (backend) => this.#identify(backend),
      now,
    });
    this.#discovery = new Discovery({
      ...options,
      open: (server) => openServer(server, this.#keys),
      identify: (server) => this.#identify(server),
      onChange: () => {
        if (!this.#isFollowing) this.#update({ keepsGone: false });
      },
    });
  }

  /** What servers list. */
  get lists(): WorkerLists {
    return this.#discovery;
  }

  /** The ids of the models of the file, and of those that leave. */
  ids(): string[] {
    return [...this.#file.models.map(({ id }) => id), ...this.pools.leaving()];
  }

  /** Runs the models of this list from now on. */
  follow({ file, keys }: WorkerList): void {
    this.#keys = keys;
    // Its changes count together with those of the file.
    this.#isFollowing = true;
    this.#firstAnswers = this.#discovery.follow(file.servers);
    this.#isFollowing = false;
    this.#file = file;
    this.#options.catalog.replace(file);
    this.#update({ keepsGone: true });
  }

  /**
   * Resolves when the servers that the latest list has added have said which models
   * they have, or could have. Never rejects.
   */
  firstAnswers(): Promise<void> {
    return this.#firstAnswers;
  }

  /** Advances time. */
  tick(): void {
    this.pools.tick();
  }

  /** Asks and runs nothing more. */
  close(): void {
    this.#discovery.stop();
    this.pools.close();
  }

  #update(gone: { keepsGone: boolean }): void {
    const { catalog } = this.#options;
    catalog.list(this.#discovery.current);
    const { models } = this.#file;
    const fileModels = models.map((model) =>
      withStandIn(model, this.#discovery, catalog)
    );
    const listed = [...catalog.values()].slice(models.length);
    this.pools.follow([...fileModels, ...listed], gone);
  }

  /** All that counts of a server: with other keys, it is another one. */
  #identify(server: BackendConfig | ServerConfig): string {
    const { keys } = "template" in server ? server.template : server;
    const values = keys.map(({ variable }) => this.#keys.get(variable));
    return JSON.stringify([server, values]);
  }
}
