/** The keys of one model server, of which each request gets one. */
import { distanceOf, seedOf } from "../models/affinity.ts";
import { type Fields, refusalWaitMs, usedUpMs } from "./cooling.ts";
import { type CountedRequest, DEAD_MS, type KeyUse } from "./key_use.ts";
import type { Bounds } from "./rule.ts";

const TOO_MANY_REQUESTS = 429;
const FIRST_REFUSAL = 400;

/** What became of a key, for log lines and metrics. */
export type KeyEvent =
  /** Its server has refused a request because of a limit. */
  | { readonly what: "limit"; readonly forMs: number }
  /** Its server does not know it. */
  | { readonly what: "dead"; readonly forMs: number };

/** A key and what asks the server with it. */
export interface RingKey<Backend> {
  /** The variable that holds the key; empty: the server needs none. */
  readonly variable: string;
  readonly use: KeyUse;
  readonly bounds: Bounds;
  readonly backend: Backend;
}

/** What a {@link Keyring} needs. */
export interface KeyringOptions<Backend> {
  readonly keys: readonly RingKey<Backend>[];
  /** The use of the server with all its keys, and its bounds. */
  readonly server: { readonly use: KeyUse; readonly bounds: Bounds };
  /** From 0 to 1, as `Math.random`. */
  readonly random: () => number;
  /** Must not throw. */
  readonly onEvent: (variable: string, event: KeyEvent) => void;
}

/** How the key of a model server does, for metrics. */
export interface KeyState {
  readonly variable: string;
  readonly inFlight: number;
  readonly isCooling: boolean;
  readonly isDead: boolean;
}

/** What is known of a request at its end. */
export interface LeaseEnd {
  /** What its server has stated. */
  readonly usage?: { readonly total_tokens: number };
  /** Whether part of its answer has come. */
  readonly hasSent: boolean;
}

/** A request that was counted for a server and one of its keys. */
export class Lease<Backend> {
  readonly key: RingKey<Backend>;
  readonly #keyUse: CountedRequest;
  readonly #server: KeyUse | null;
  readonly #serverTaken: CountedRequest | null;

  /** Counts it. `server` is null if it has no bounds. */
  constructor(key: RingKey<Backend>, server: KeyUse | null) {
    this.key = key;
    this.#keyUse = key.use.take();
    this.#server = server;
    this.#serverTaken = server?.take() ?? null;
  }

  /** It has ended. Nobody knows what an answer has cost that was cut. */
  end({ usage, hasSent }: LeaseEnd, hasFailed: boolean): void {
    const isCut = hasFailed && hasSent;
    const tokens = usage?.total_tokens ?? (isCut ? null : 0);
    this.key.use.end(this.#keyUse, tokens);
    if (this.#serverTaken !== null) {
      this.#server?.end(this.#serverTaken, tokens);
    }
  }
}

/**
 * Gives each request a key that may be used now. A key that its server does not know is
 * left out while there are others; if there are none, it is tried all the same.
 */
export class Keyring<Backend> {
  readonly #options: KeyringOptions<Backend>;
  /** Null if the server has no bounds. */
  readonly #server: KeyringOptions<Backend>["server"] | null;

  constructor(options: KeyringOptions<Backend>) {
    this.#options = options;
    const { server } = options;
    const isBounded = Object.values(server.bounds)
      .some((bound) => bound !== undefined);
    this.#server = isBounded ? server : null;
  }

  /** What asks the server, one for each key. */
  get backends(): readonly Backend[] {
    return this.#options.keys.map(({ backend }) => backend);
  }

  /** The state of each key. */
  states(): KeyState[] {
    return this.#options.keys.map(({ variable, use }) => ({
      variable,
      inFlight: use.inFlight,
      isCooling: use.coolingMs > 0,
      isDead: use.isDead,
    }));
  }

  /** How long a request must wait at least for a key; 0: there is one now. */
  waitMs(): number {
    const waitMs = this.#serverWaitMs();
    if (waitMs > 0) return waitMs;
    const waits = this.#usable().map(({ use, bounds }) => use.waitMs(bounds));
    return Math.min(...waits);
  }

  /**
   * Counts a request for one of the keys that were not tried, or returns null if none
   * may be used now. Requests of one session get the same key if they can, others the
   * one of which the least is used.
   */
  take(
    session: string | undefined,
    tried: ReadonlySet<RingKey<Backend>>,
  ): Lease<Backend> | null {
    const { random } = this.#options;
    if (this.#serverWaitMs() > 0) return null;
    const free = this.#usable()
      .filter((key) => !tried.has(key) && key.use.waitMs(key.bounds) === 0);
    const key = session === undefined
      ? leastUsed(free, random)
      : nearest(session, free);
    if (key === undefined) return null;
    return new Lease(key, this.#server?.use ?? null);
  }

  /**
   * Whether a key is left that was not tried. If none could be taken, a limit was the
   * reason, even if it has ended by now.
   */
  hasUntried(tried: ReadonlySet<RingKey<Backend>>): boolean {
    return this.#usable().some((key) => !tried.has(key));
  }

  /** A server has answered a request with this key: what its headers say counts. */
  heed(
    key: RingKey<Backend>,
    { status, fields }: { status: number; fields: Fields },
  ): void {
    if (status === TOO_MANY_REQUESTS) {
      return this.#refuse(key, refusalWaitMs(fields));
    }
    if (status < FIRST_REFUSAL) key.use.answered();
    const waitMs = usedUpMs(fields);
    if (waitMs !== null) key.use.cool(waitMs);
  }

  /**
   * A request with this key has failed. Returns whether that was the key's fault, so
   * that another key may help.
   */
  onFault(key: RingKey<Backend>, fault: string): boolean {
    if (fault === "rate_limited") {
      // Its status said so already, unless an event within an answer did.
      if (key.use.coolingMs === 0) this.#refuse(key, null);
      return true;
    }
    if (fault !== "credentials" || this.#options.keys.length === 1) {
      return false;
    }
    if (!key.use.isDead) {
      key.use.die();
      const event = { what: "dead", forMs: DEAD_MS } as const;
      this.#options.onEvent(key.variable, event);
    }
    return true;
  }

  #refuse(key: RingKey<Backend>, waitMs: number | null): void {
    const isFirst = key.use.coolingMs === 0;
    key.use.refused(waitMs);
    if (!isFirst) return;
    const { coolingMs: forMs } = key.use;
    this.#options.onEvent(key.variable, { what: "limit", forMs });
  }

  /** How long the server is at its bounds, in ms; 0: it is not, or has none. */
  #serverWaitMs(): number {
    const server = this.#server;
    return server === null ? 0 : server.use.waitMs(server.bounds);
  }

  /** Those that their server knows or, if it knows none, all. */
  #usable(): readonly RingKey<Backend>[] {
    const { keys } = this.#options;
    if (keys.length === 1) return keys;
    const alive = keys.filter(({ use }) => !use.isDead);
    return alive.length > 0 ? alive : keys;
  }
}

/**
 * The key whose bounds are used least; of equal ones, that with the fewest requests.
 */
function leastUsed<Backend>(
  keys: readonly RingKey<Backend>[],
  random: () => number,
): RingKey<Backend> | undefined {
  if (keys.length < 2) return keys[0];
  return keys
    .map((key) => ({
      key,
      load: key.use.loadOf(key.bounds),
      inFlight: key.use.inFlight,
      chance: random(),
    }))
    .reduce((a, b) =>
      (b.load - a.load || b.inFlight - a.inFlight || b.chance - a.chance) < 0
        ? b
        : a
    ).key;
}

/** The key of a session, whose account has the beginning of its conversation cached. */
function nearest<Backend>(
  session: string,
  keys: readonly RingKey<Backend>[],
): RingKey<Backend> | undefined {
  const [first, ...rest] = keys.map((key) => ({
    key,
    distance: distanceOf(session, { seed: seedOf(key.variable), weight: 1 }),
  }));
  return rest.reduce((a, b) => a && b.distance < a.distance ? b : a, first)
    ?.key;
}
