/** What model servers list, asked for again and again. */
import type { WorkerFamily } from "../../bus/subjects.ts";
import { DISCOVERY_LIMITS } from "../../bus/server_lists.ts";
import type { Catalog, ModelConfig } from "../../models/catalog.ts";
import { familyOf } from "../../models/kinds.ts";
import { idOf, kindIn, type ServerConfig } from "../../models/servers.ts";
import type { MonotonicNow } from "../../process/clock.ts";
import type { Log } from "../../process/log.ts";
import { settlesWithin } from "../../process/lifecycle/serve.ts";
import { UpstreamError } from "../../upstream/http/errors.ts";

/** The models that servers list, as a worker knows them. */
export interface WorkerLists {
  /** Changes with the lists. */
  readonly revision: number;
  /** The ids by the names of the servers. */
  readonly current: { [server: string]: string[] };
}

/** A server that can be asked which models it has. */
export interface ListingServer {
  /** The names of its models. */
  ask(signal: AbortSignal): Promise<readonly string[]>;
  /** It is asked no more. */
  close(): void;
}

/** What finding models needs. */
export interface DiscoveryOptions {
  /** Only models of its kinds are listed. */
  family: WorkerFamily;
  open(server: ServerConfig): ListingServer;
  /** Equal for servers that are the same in all that counts, their keys included. */
  identify(server: ServerConfig): string;
  now: MonotonicNow;
  /** From 0 to 1, as `Math.random`. */
  random: () => number;
  /** Resolves after `ms`, or rejects if the signal aborts first. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  log: Pick<Log, "info" | "warn" | "debug">;
  /** The lists have changed. */
  onChange(): void;
}

/** A server that is asked, and what is known of it. */
interface ServerEntry {
  readonly server: ServerConfig;
  readonly identity: string;
  readonly listing: ListingServer;
  readonly stopping: AbortController;
  /** Whether it has answered or failed since it is as it is now. */
  isAsked: boolean;
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
  readonly #entries = new Map<string, ServerEntry>();
  #revision = 0;

  constructor(options: DiscoveryOptions) {
    this.#options = options;
  }

  get revision(): number {
    return this.#revision;
  }

  get current(): { [server: string]: string[] } {
    return Object.fromEntries(
      [...this.#entries].filter(([, { isAsked }]) => isAsked)
        .map(([name, { ids }]) => [name, [...ids]]),
    );
  }

  /** All names that a server lists. */
  namesOf({ name }: ServerConfig): readonly string[] {
    return this.#entries.get(name)?.names ?? [];
  }

  /**
   * Asks exactly these servers from now on, and at once those that are new or have
   * changed: these keep what is known of them until they answer. Resolves when all that
   * were asked have answered or failed once, or after
   * {@link DISCOVERY_LIMITS.startMs}.
   */
  async follow(servers: readonly ServerConfig[]): Promise<void> {
    const before = new Map(this.#entries);
    this.#entries.clear();
    const firsts: Promise<void>[] = [];
    for (const server of servers) {
      const current = before.get(server.name);
      const identity = this.#options.identify(server);
      if (current?.identity === identity) {
        before.delete(server.name);
        this.#entries.set(server.name, current);
        continue;
      }
      const first = Promise.withResolvers<void>();
      firsts.push(first.promise);
      const entry = this.#enter(server, current);
      void this.#keepAsking(entry, () => first.resolve());
    }
    for (const { listing, stopping } of before.values()) {
      stopping.abort(new Error("The server is not in the list any more"));
      listing.close();
    }
    if (before.size > 0) this.#change();
    await settlesWithin(Promise.all(firsts), DISCOVERY_LIMITS.startMs);
  }

  /** Asks no more. */
  stop(): void {
    for (const { listing, stopping } of this.#entries.values()) {
      stopping.abort(new Error("The worker stops"));
      listing.close();
    }
  }

  /** Asks all servers now. Never rejects. */
  async askAll(): Promise<void> {
    for (const entry of this.#entries.values()) await this.#ask(entry);
  }

  #enter(server: ServerConfig, before: ServerEntry | undefined): ServerEntry {
    const { names = [], failingSinceMs = null } = before ?? {};
    const entry: ServerEntry = {
      server,
      identity: this.#options.identify(server),
      listing: this.#options.open(server),
      stopping: new AbortController(),
      isAsked: before?.isAsked ?? false,
      names,
      ids: [],
      failingSinceMs,
    };
    this.#entries.set(server.name, entry);
    // It may have another prefix, or other kinds.
    entry.ids = this.#idsOf(server, names);
    return entry;
  }

  async #keepAsking(entry: ServerEntry, onAsked: () => void): Promise<void> {
    const { random, sleep } = this.#options;
    const { server, stopping: { signal } } = entry;
    while (!signal.aborted) {
      await this.#ask(entry);
      onAsked();
      const spread = 1 + JITTER * (random() - 0.5);
      // Rejects only when it is stopped.
      await sleep(server.everyMs * spread, signal).catch(() => {});
    }
  }

  async #ask(entry: ServerEntry): Promise<void> {
    const { listing, stopping: { signal } } = entry;
    try {
      const names = await listing.ask(signal);
      if (!signal.aborted) this.#take(entry, names);
    } catch (error) {
      if (!signal.aborted) this.#fail(entry, error);
    }
  }

  #take(entry: ServerEntry, names: readonly string[]): void {
    const { server, isAsked } = entry;
    entry.failingSinceMs = null;
    if (isAsked && isSame(entry.names, names)) return;
    entry.names = names;
    entry.ids = this.#idsOf(server, names);
    this.#options.log.info("models_listed", {
      server: server.name,
      listed: names.length,
      offered: entry.ids.length,
    });
    this.#change(entry);
  }

  /** The ids of the names that may be offered, within the bounds of a message. */
  #idsOf(server: ServerConfig, names: readonly string[]): string[] {
    const { family, log } = this.#options;
    const fit = names.map((name) => idOf(server, name))
      .filter((id) => id !== null)
      .filter((id) => {
        const kind = kindIn(server, id);
        return kind !== null && familyOf(kind) === family;
      });
    const bytesMax = DISCOVERY_LIMITS.namesBytesMax / this.#entries.size;
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

  #fail(entry: ServerEntry, error: unknown): void {
    const { now, log } = this.#options;
    const isFirst = entry.failingSinceMs === null;
    entry.failingSinceMs ??= now();
    const cause = error instanceof UpstreamError ? error.logText : error;
    const line = { server: entry.server.name, error: cause };
    if (isFirst) {
      log.warn("models_not_listed", {
        ...line,
        message:
          "A model server does not say which models it has; those that " +
          "are known stay for ten minutes",
      });
    } else log.debug("models_not_listed", line);
    const isLost = now() - entry.failingSinceMs >= DISCOVERY_LIMITS.keepMs;
    if (isLost && entry.ids.length > 0) {
      entry.names = [];
      entry.ids = [];
      this.#change(entry);
    } else if (!entry.isAsked) this.#change(entry); // It has none, which counts.
  }

  /** Something is known now that was not, of this server if it is given. */
  #change(entry?: ServerEntry): void {
    if (entry !== undefined) entry.isAsked = true;
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
