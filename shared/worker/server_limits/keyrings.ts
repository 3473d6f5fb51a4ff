/** Opens model servers with their keys, as the list of models has them. */
import type { BackendConfig } from "../../models/catalog.ts";
import type { Log } from "../../process/log.ts";
import {
  type KeyEvent,
  Keyring,
  type RingKey,
} from "../../server_limits/keyring.ts";
import type { KeyUse } from "../../server_limits/key_use.ts";
import type { Bounds } from "../../server_limits/rule.ts";
import type { UseTable } from "../../server_limits/use_table.ts";
import type { ModelServerOptions } from "../../upstream/model_server.ts";

/** The members of a server that say which keys it has, and what bounds them. */
export type KeyedConfig = Pick<
  BackendConfig,
  "name" | "base_url" | "model" | "keys" | "bounds" | "limits_of"
>;

/** The keys of a server that needs no key. */
const NO_KEY: KeyedConfig["keys"] = [{
  variable: "",
  bounds: { requests: undefined, tokens: undefined, inFlight: undefined },
}];

/** What a server is asked with. */
export type Credential = Pick<ModelServerOptions, "apiKey" | "onHead">;

/** What {@link Keyrings} need. */
export interface KeyringsOptions {
  readonly table: Pick<UseTable, "useOf">;
  /** From 0 to 1, as `Math.random`. */
  readonly random: () => number;
  /** Must not throw. */
  readonly onEvent: (place: KeyPlace, event: KeyEvent) => void;
}

/** How servers are opened. */
export interface OpenServers<Config, Backend> {
  /** The values of keys by their variables. */
  readonly keys: ReadonlyMap<string, string>;
  create(config: Config, credential: Credential): Backend;
}

/**
 * Servers and, in the same order, the keyrings of those that have limits or several
 * keys.
 */
export interface OpenedServers<Backend> {
  readonly backends: readonly Backend[];
  readonly keyrings: readonly (Keyring<Backend> | null)[];
}

/** Which key of which server. */
export interface KeyPlace {
  readonly model: string;
  readonly backend: string;
  /** Its variable, never its value. */
  readonly key: string;
}

/** Writes the line about a key that was refused. */
export function logKeyEvent(
  log: Pick<Log, "warn">,
  place: KeyPlace,
  { what, forMs }: KeyEvent,
): void {
  const line = { ...place, forMs: Math.ceil(forMs) };
  if (what === "dead") {
    return log.warn("server_key_dead", {
      ...line,
      message: "A model server does not accept one of its keys; the others " +
        "serve, and it is tried again later",
    });
  }
  log.warn("server_key_resting", {
    ...line,
    message: "A model server has refused a request because of a limit; the " +
      "key rests, and others serve if there are any",
  });
}

/** Whether the use of a server is counted: it has limits, or several keys. */
export const isCounted = (
  { keys, bounds }: Pick<KeyedConfig, "keys" | "bounds">,
): boolean => keys.length > 1 || [{ bounds }, ...keys].some(isBounded);

const isBounded = ({ bounds }: { readonly bounds: Bounds }): boolean =>
  Object.values(bounds).some((bound) => bound !== undefined);

/** The keys of all servers of a worker. */
export class Keyrings {
  readonly #options: KeyringsOptions;
  /** The values with which keys were used last. */
  readonly #values = new WeakMap<KeyUse, string>();

  constructor(options: KeyringsOptions) {
    this.#options = options;
  }

  /**
   * Opens the servers of a model. Nothing is counted for one without limits and with
   * one key.
   */
  open<Config extends KeyedConfig, Backend>(
    model: string,
    configs: readonly Config[],
    how: OpenServers<Config, Backend>,
  ): OpenedServers<Backend> {
    const opened = configs.map((config) => {
      if (isCounted(config)) return this.#openCounted(model, config, how);
      const [{ variable } = { variable: "" }] = config.keys;
      const apiKey = how.keys.get(variable) ?? null;
      return { backend: how.create(config, { apiKey }), keyring: null };
    });
    return {
      backends: opened.map(({ backend }) => backend),
      keyrings: opened.map(({ keyring }) => keyring),
    };
  }

  #openCounted<Config extends KeyedConfig, Backend>(
    model: string,
    config: Config,
    { keys, create }: OpenServers<Config, Backend>,
  ): { backend: Backend; keyring: Keyring<Backend> } {
    const { table, random, onEvent } = this.#options;
    const { base_url: baseUrl, limits_of, name: backend } = config;
    const useOf = (variable: string | null) =>
      table.useOf({
        baseUrl,
        model: limits_of === "model" ? config.model : null,
        variable,
      });
    const ringKeys = config.keys.length > 0 ? config.keys : NO_KEY;
    const ring = ringKeys.map(({ variable, bounds }): RingKey<Backend> => {
      const apiKey = keys.get(variable) ?? null;
      const use = useOf(variable);
      this.#renewIfOther(use, apiKey ?? "");
      const onHead: Credential["onHead"] = (head) => keyring.heed(key, head);
      const backend = create(config, { apiKey, onHead });
      const key = { variable, use, bounds, backend };
      return key;
    });
    const keyring: Keyring<Backend> = new Keyring({
      keys: ring,
      server: { use: useOf(null), bounds: config.bounds },
      random,
      onEvent: (key, event) => onEvent({ model, backend, key }, event),
    });
    const [first] = ring;
    if (first === undefined) throw new Error("A server has at least one key");
    return { backend: first.backend, keyring };
  }

  /** Begins anew with a rotated key, which its server has not refused. */
  #renewIfOther(use: KeyUse, value: string): void {
    const before = this.#values.get(use);
    if (before !== undefined && before !== value) use.renew();
    this.#values.set(use, value);
  }
}
