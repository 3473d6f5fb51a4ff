/** The default settings of new keys of an account. */
import { isDeepStrictEqual } from "node:util";
import type { KeyRecord, Limits } from "@gateway/shared/keys/record";
import { z } from "zod";
import type { Actor } from "../audit/audit_log.ts";
import {
  AccountChanged,
  type ChangeRecord,
  createRecordChanger,
  versionOf,
} from "../audit/record_change.ts";
import { type Fields, readHash, type StoreDeps } from "../store/redis.ts";
import { decodeLimits, encodeKey } from "./key_record.ts";
import { type KeySettings, namedLimits } from "./settings.ts";

/** Default settings of an account. They are no bounds: each key may have others. */
export interface KeyDefaults {
  limits: Limits;
  /** Model ids; empty: all. */
  models: readonly string[];
  /** Days until a new key expires; 0 if it never does. */
  expiryDays: number;
}

const DAY_MS = 86_400_000;
/** Ten years. Beyond: refused. */
const EXPIRY_DAYS_MAX = 3_650;
const EXPIRY_FIELD = "expiry_days";
const MODELS_FIELD = "models";

const tooMuch = `A whole number of days, at most ${EXPIRY_DAYS_MAX}`;
/** Days in a text; empty means never, like 0. */
export const expiryDays = z.string().trim().regex(/^\d{0,4}$/, tooMuch)
  .transform(Number).pipe(z.number().max(EXPIRY_DAYS_MAX, tooMuch));

const defaultsKey = (ownerId: string) => `defaults:{${ownerId}}`;

/** Dependencies of a {@link DefaultStore}. */
export type DefaultStoreDeps = Pick<StoreDeps, "redis" | "writer">;

/** The defaults of accounts, of owners and of projects; durable like keys. */
export class DefaultStore {
  readonly #deps: DefaultStoreDeps;
  readonly #change: ChangeRecord;

  constructor(deps: DefaultStoreDeps) {
    this.#deps = deps;
    this.#change = createRecordChanger(deps.writer);
  }

  /** The defaults of an account; null if it has none of its own. */
  async read(ownerId: string): Promise<KeyDefaults | null> {
    const fields = await readHash(this.#deps.redis, defaultsKey(ownerId));
    return fields && decode(fields);
  }

  /** The version of the defaults of an account; 0: it has none of its own. */
  async version(ownerId: string): Promise<number> {
    const { redis } = this.#deps;
    return versionOf(await readHash(redis, defaultsKey(ownerId)) ?? {});
  }

  /**
   * Replaces the defaults of an account; what is so already is no change. Keys that
   * exist stay as they are. Throws `AccountChanged` unless `version` is null or what
   * they have.
   */
  async write(
    ownerId: string,
    defaults: KeyDefaults,
    { version = null, ...actor }: Actor & { version?: number | null },
  ): Promise<void> {
    const { models, limits } = defaults;
    const fields = await readHash(this.#deps.redis, defaultsKey(ownerId));
    if (fields !== null && isDeepStrictEqual(decode(fields), defaults)) {
      if (version === null || version === versionOf(fields)) return;
      throw new AccountChanged();
    }
    const days = [EXPIRY_FIELD, String(defaults.expiryDays)];
    const action = "account.key_defaults_changed";
    await this.#change(ownerId, {
      record: defaultsKey(ownerId),
      fields: [...encodeKey({ limits, models }), ...days],
      version,
      entries: [{ action, ...actor, detail: textOf(defaults) }],
    });
  }
}

const decode = (fields: Fields): KeyDefaults => ({
  limits: decodeLimits(fields),
  models: (fields[MODELS_FIELD] ?? "").split(",").filter((id) => id !== ""),
  expiryDays: Number(fields[EXPIRY_FIELD] ?? 0),
});

function textOf({ limits, models, expiryDays }: KeyDefaults): string {
  const set = Object.entries(namedLimits(limits, " "))
    .filter(([, limit]) => limit !== 0)
    .map(([name, limit]) => `${name} ${limit}`);
  const expires = expiryDays === 0 ? "never" : `after ${expiryDays} days`;
  const all = [`models ${models.join("+") || "all"}`, `expires ${expires}`];
  return [...set, ...all].join(", ");
}

/** The settings of a new key with the defaults of its account, where it has any. */
export function withDefaults(
  settings: KeySettings,
  defaults: KeyDefaults | null,
  nowMs: number,
): KeySettings {
  if (defaults === null) return settings;
  const { limits, models, expiryDays } = defaults;
  const expiresAtMs: KeyRecord["expiresAtMs"] = expiryDays === 0
    ? null
    : nowMs + expiryDays * DAY_MS;
  return { ...settings, limits, models, expiresAtMs };
}
