/** What model servers list, asked for again and again. */
import type { WorkerFamily } from "../bus/subjects.ts";
import { DISCOVERY_LIMITS } from "../bus/server_lists.ts";
import type { Catalog, ModelConfig } from "../models/catalog.ts";
import { familyOf } from "../models/kinds.ts";
import { idOf, kindIn, type ServerConfig } from "../models/servers.ts";
import type { MonotonicNow } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import { settlesWithin } from "../process/lifecycle/serve.ts";
import { UpstreamError } from "../upstream/http/errors.ts";
import type { WorkerLists } from "./worker.ts";

/** What finding models needs. */
export interface DiscoveryOptions {
  servers: readonly ServerConfig[];
  /** Only models of its kinds are listed. */
  family: WorkerFamily;
  /** The names of the models of a server. */
  ask(server: ServerConfig, signal: AbortSignal): Promise<readonly string[]>;
  now: MonotonicNow;
  /** From 0 to 1, as `Math.random`. */
  random: () => number;
  /** Resolves after `ms`, or rejects if the signal aborts first. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  log: Pick<Log, "info" | "warn" | "debug">;
  /** The lists have changed. */
  onChange(): void;
}

/** What is known of one server. */
interface Known {
  /** All names that it lists. */
  names: readonly string[];
  /** The ids that are offered of them. */
  ids: readonly string[];
  /** Since when it has not answered; null: it has. */
  failingSinceMs: number | null;
}

/** So that workers that were started together do not ask together. */
const JITTER = 0.2;

/**
 * Asks servers for their models, and keeps the lists. A server that fails keeps its
 * models for {@link DISCOVERY_LIMITS.keepMs}.
 */
export class Discovery implements WorkerLists {
  readonly #options: DiscoveryOptions;
  readonly #known = new Map<string, Known>();
  readonly #stopping = new AbortController();
  #revision = 0;

  constructor(options: DiscoveryOptions) {
    this.#options = options;
  }

  get revision(): number {
    return this.#revision;
  }

  get current(): { [server: string]: string[] } {
    return Object.fromEntries(
      [...this.#known].map(([name, { ids }]) => [name, [...ids]]),
    );
  }

  /** All names that a server lists. */
  namesOf({ name }: ServerConfig): readonly string[] {
    return this.#known.get(name)?.names ?? [];
  }

  /**
   * Begins to ask. Resolves when all servers have answered or failed once, or after
   * {@link DISCOVERY_LIMITS.startMs}.
   */
  async start(): Promise<void> {
    const firsts = this.#options.servers.map((server) => {
      const first = Promise.withResolvers<void>();
      void this.#follow(server, () => first.resolve());
      return first.promise;
    });
    await settlesWithin(Promise.all(firsts), DISCOVERY_LIMITS.startMs);
  }

  /** Asks no more. */
  stop(): void {
    this.#stopping.abort(new Error("The worker stops"));
  }

  async #follow(server: ServerConfig, onAsked: () => void): Promise<void> {
    const { random, sleep } = this.#options;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      await this.ask(server);
      onAsked();
      const spread = 1 + JITTER * (random() - 0.5);
      // Rejects only when it is stopped.
      await sleep(server.everyMs * spread, signal).catch(() => {});
    }
  }

  /** Asks one server now. Never rejects. */
  async ask(server: ServerConfig): Promise<void> {
    const { signal } = this.#stopping;
    try {
      this.#take(server, await this.#options.ask(server, signal));
    } catch (error) {
      if (!signal.aborted) this.#fail(server, error);
    }
  }

  #take(server: ServerConfig, names: readonly string[]): void {
    const before = this.#known.get(server.name);
    if (before !== undefined && isSame(before.names, names)) {
      before.failingSinceMs = null;
      return;
    }
    const ids = this.#idsOf(server, names);
    this.#known.set(server.name, { names, ids, failingSinceMs: null });
    this.#options.log.info("models_listed", {
      server: server.name,
      listed: names.length,
      offered: ids.length,
    });
    this.#change();
  }

  /** The ids of the names that may be offered, within the bounds of a message. */
  #idsOf(server: ServerConfig, names: readonly string[]): string[] {
    const { family, servers, log } = this.#options;
    const fit = names.map((name) => idOf(server, name))
      .filter((id) => id !== null)
      .filter((id) => {
        const kind = kindIn(server, id);
        return kind !== null && familyOf(kind) === family;
      });
    const bytesMax = DISCOVERY_LIMITS.namesBytesMax / servers.length;
    const ids: string[] = [];
    let bytes = 0;
    for (const id of fit.slice(0, DISCOVERY_LIMITS.modelsMax)) {
      bytes += id.length + 3; // Quotes and a comma.
      if (bytes > bytesMax) break;
      ids.push(id);
    }
    if (ids.length < fit.length) {
      log.warn("models_left_out", {
        server: server.name,
        leftOut: fit.length - ids.length,
        message: "A model server lists more models than one server may offer",
      });
    }
    return ids;
  }

  #fail(server: ServerConfig, error: unknown): void {
    const { now, log } = this.#options;
    const known = this.#known.get(server.name) ??
      { names: [], ids: [], failingSinceMs: null };
    const isFirst = known.failingSinceMs === null;
    known.failingSinceMs ??= now();
    this.#known.set(server.name, known);
    const cause = error instanceof UpstreamError ? error.logText : error;
    const line = { server: server.name, error: cause };
    if (isFirst) {
      log.warn("models_not_listed", {
        ...line,
        message:
          "A model server does not say which models it has; those that " +
          "are known stay for ten minutes",
      });
    } else log.debug("models_not_listed", line);
    const isLost = now() - known.failingSinceMs >= DISCOVERY_LIMITS.keepMs;
    if (isLost && known.ids.length > 0) {
      known.names = [];
      known.ids = [];
      this.#change();
    } else if (this.#revision === 0) this.#change(); // Nothing is known, which counts.
  }

  #change(): void {
    this.#revision += 1;
    this.#options.onChange();
  }
}

/**
 * A model of the file with the name that its server has for it: where that was left to
 * the server, its first chat model, unless it has one of the given name.
 */
export function withStandIn(
  model: Pick<ModelConfig, "id" | "backends">,
  discovery: Pick<Discovery, "namesOf">,
  { servers }: Pick<Catalog, "servers">,
): Pick<ModelConfig, "id" | "backends"> {
  const { id } = model;
  const backends = model.backends.map((backend) => {
    const server = servers.find(({ name, standIn }) =>
      name === backend.name && standIn === id
    );
    if (server === undefined) return backend;
    const names = discovery.namesOf(server);
    const first = names.find((name) =>
      kindIn(server, server.prefix + name) === "chat"
    );
    const isThere = first === undefined || names.includes(backend.model);
    return isThere ? backend : { ...backend, model: first };
  });
  return { id, backends };
}

const isSame = (one: readonly string[], other: readonly string[]): boolean =>
  one.length === other.length &&
  one.every((name, index) => name === other[index]);
