/**
 * Admin keys: the credentials of programs that manage keys and owners through
 * `/admin/v1`. They are in one hash of Redis by the SHA-256 of their values, which
 * exist nowhere.
 */
import { randomBase62 } from "@gateway/shared/keys/key";
import { z } from "zod";
import type { Actor, AuditLog } from "../audit/audit_log.ts";
import type { OwnerStore } from "../owners/owner_store.ts";
import { isoTime } from "../keys/key_json.ts";
import { createPersist } from "../store/durability.ts";
import {
  asNumber,
  asTextOrNull,
  asTexts,
  type StoreDeps,
} from "../store/redis.ts";
import { digest, isSecret, mintSecret } from "../store/secret.ts";

/** What an admin key may be used for. */
export const ADMIN_SCOPES = ["keys", "accounts", "usage", "models"] as const;
/** One of the {@link ADMIN_SCOPES}. */
export type AdminScope = typeof ADMIN_SCOPES[number];

/** Each request reads one key, but a list reads all. */
export const ADMIN_KEYS_MAX = 1_000;

const ADMIN_KEYS = "admin_keys";
const PREFIX = "sk-admin-";
const ID_CHARS = 20;
const HINT_CHARS = 4;

const storedKey = z.object({
  id: z.string(),
  description: z.string(),
  hint: z.string(),
  scopes: z.array(z.enum(ADMIN_SCOPES)),
  /** Its creator, as the audit log names them. */
  createdBy: z.string(),
  createdAtMs: z.number(),
  /** Null if it never expires. */
  expiresAtMs: z.number().nullable(),
});

/** An admin key, without its value. */
export type AdminKey = Readonly<z.output<typeof storedKey>>;

/** An admin key as commands and the admin API show it. */
export const adminKeyJson = (key: AdminKey) => ({
  id: key.id,
  description: key.description,
  hint: key.hint,
  scopes: key.scopes,
  created_by: key.createdBy,
  created_at: isoTime(key.createdAtMs),
  expires_at: isoTime(key.expiresAtMs),
});

const REFUSALS = {
  not_found: "There is no admin key of this id",
  too_many:
    `There are ${ADMIN_KEYS_MAX} admin keys. Delete one that is no longer used`,
  already_made:
    "This admin key was already created: it was asked for twice. The first answer had the full value. If you did not store it, delete the key and create another one",
};

/**
 * A change of admin keys was refused, and nothing was changed. The message is a
 * sentence without its full stop.
 */
export class AdminKeyRefused extends Error {
  override name = "AdminKeyRefused";

  constructor(readonly reason: keyof typeof REFUSALS) {
    super(REFUSALS[reason]);
  }
}

/**
 * An operator, or the command line or an admin key (null), in whose name a key is made
 * or deleted.
 */
interface Maker extends Actor {
  ownerId: string | null;
}

/** A key made twice within this time is refused. */
const ONCE_SECONDS = "86400";

/** Whether `text` could be an admin key; anything else is not looked up. */
export const isAdminKey = (text: string): boolean =>
  text.startsWith(PREFIX) && isSecret(text.slice(PREFIX.length));

/** The admin keys; durable like API keys, and every change is in the audit log. */
export class AdminKeyStore {
  readonly #deps: StoreDeps;
  readonly #audit: Pick<AuditLog, "add">;
  readonly #owners: Pick<OwnerStore, "first">;
  readonly #persist: () => Promise<void>;

  constructor(
    { audit, owners, ...deps }: StoreDeps & {
      audit: Pick<AuditLog, "add">;
      owners: Pick<OwnerStore, "first">;
    },
  ) {
    this.#deps = deps;
    this.#audit = audit;
    this.#owners = owners;
    this.#persist = createPersist(deps.writer);
  }

  /** Creates a key. Its value is returned here and exists nowhere else. */
  async create(
    wanted: Pick<AdminKey, "description" | "scopes" | "expiresAtMs">,
    maker: Maker & {
      /** Digest of a form's nonce: a second key with the same one is refused. */
      once?: string | undefined;
    },
  ): Promise<{ key: AdminKey; value: string }> {
    const { writer, randomBytes, now } = this.#deps;
    const count = asNumber(await writer.command(["HLEN", ADMIN_KEYS]));
    if (count >= ADMIN_KEYS_MAX) {
      throw new AdminKeyRefused("too_many");
    }
    if (maker.once !== undefined) await this.#takeOnce(maker.once);
    const value = PREFIX + mintSecret(randomBytes);
    const { description, scopes, expiresAtMs } = wanted;
    const key: AdminKey = {
      id: `adm_${randomBase62(ID_CHARS, randomBytes)}`,
      description,
      hint: `${PREFIX}…${value.slice(-HINT_CHARS)}`,
      scopes,
      createdBy: maker.by,
      createdAtMs: now(),
      expiresAtMs,
    };
    const stored = [digest(value), JSON.stringify(key)];
    await writer.command(["HSET", ADMIN_KEYS, ...stored]);
    await this.#persist();
    await this.#note("admin_key.created", key, maker);
    return { key, value };
  }

  /** The key of a value; null if there is none, also if it has expired. */
  async find(value: string): Promise<AdminKey | null> {
    if (!isAdminKey(value)) return null;
    const { redis, now } = this.#deps;
    const found = await redis.command(["HGET", ADMIN_KEYS, digest(value)]);
    const text = asTextOrNull(found);
    if (text === null) return null;
    const key = storedKey.parse(JSON.parse(text));
    const isExpired = key.expiresAtMs !== null && key.expiresAtMs <= now();
    return isExpired ? null : key;
  }

  /** All keys, the newest first; those that have expired, too. */
  async list(): Promise<AdminKey[]> {
    const texts = asTexts(
      await this.#deps.redis.command(["HVALS", ADMIN_KEYS]),
    );
    return texts.map((text) => storedKey.parse(JSON.parse(text)))
      .sort((a, b) => b.createdAtMs - a.createdAtMs);
  }

  /** Deletes a key, which is refused from the next request on. */
  async delete(id: string, maker: Maker): Promise<AdminKey> {
    const { writer } = this.#deps;
    const names = asTexts(await writer.command(["HKEYS", ADMIN_KEYS]));
    for (const name of names) {
      const text = asTextOrNull(
        await writer.command(["HGET", ADMIN_KEYS, name]),
      );
      const key = text === null ? null : storedKey.parse(JSON.parse(text));
      if (key?.id !== id) continue;
      await writer.command(["HDEL", ADMIN_KEYS, name]);
      await this.#persist();
      await this.#note("admin_key.deleted", key, maker);
      return key;
    }
    throw new AdminKeyRefused("not_found");
  }

  async #takeOnce(once: string): Promise<void> {
    const set = ["SET", `once:{admin_keys}:${once}`, "1", "NX"];
    const { writer } = this.#deps;
    const isFirst = await writer.command([...set, "EX", ONCE_SECONDS]);
    if (isFirst === null) throw new AdminKeyRefused("already_made");
  }

  /**
   * Writes an entry to the audit log of the operator; of the first owner for the
   * command line.
   */
  async #note(
    action: `admin_key.${"created" | "deleted"}`,
    { id, hint, description, scopes }: AdminKey,
    { ownerId, by, ip }: Maker,
  ): Promise<void> {
    const detail = `${id} (${hint}) "${description}": ${scopes.join(", ")}`;
    const whose = ownerId ?? await this.#owners.first();
    await this.#audit.add(whose, { action, by, ip, detail });
  }
}
