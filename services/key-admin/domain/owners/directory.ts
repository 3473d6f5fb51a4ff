import { mintOwnerId } from "@gateway/shared/keys/key";
import { type Limits, ownerLimitsKey } from "@gateway/shared/keys/record";
import type { DefaultLimits } from "../keys/settings.ts";
import { decodeLimits, encodeKey } from "../keys/key_record.ts";
import { writeDurably } from "../store/durability.ts";
import {
  accountKey,
  firstOwnerKey,
  identityKey,
  mailKey,
  ownersKey,
} from "../store/names.ts";
import {
  asText,
  asTexts,
  readHash,
  readText,
  type StoreDeps,
} from "../store/redis.ts";
import { digest } from "../store/secret.ts";

/** RFC 5321, 4.5.3.1.3: a path of 256 octets, less its angle brackets. */
export const EMAIL_CHARS_MAX = 254;
/** Deliberately loose: an address is verified by the link sent to it, not by its form. */
const EMAIL =
  /^[^\s@<>"'`,;:\\()[\]{}\p{Cc}\p{Cf}]{1,64}@[^\s@<>"'`,;:\\()[\]{}\p{Cc}\p{Cf}]{1,253}$/u;

/** The address in the form in which it is stored and compared, or null when it is not one. */
export function parseEmail(text: string): string | null {
  const email = text.normalize("NFKC").trim().toLowerCase();
  return email.length <= EMAIL_CHARS_MAX && EMAIL.test(email) ? email : null;
}

/** A person at an OpenID Connect provider. Issuer and subject together name a person; the address is proved by the provider and allowed by the operator. */
export interface Identity {
  issuer: string;
  subject: string;
  email: string;
}

/** Dependencies of the directory. */
export interface OwnerDirectoryDeps extends StoreDeps {
  defaultLimits: Pick<DefaultLimits, "owner">;
}

/**
 * Who owns keys. An owner exists from the first key or invitation on; signing in
 * also needs a password. `store/names.ts` has the layout in Redis.
 */
export type OwnerDirectory = ReturnType<typeof createOwnerDirectory>;

export function createOwnerDirectory(
  { redis, writer, randomBytes, now, defaultLimits }: OwnerDirectoryDeps,
) {
  /**
   * The pointer to the owner is written last and only once: one of several calls
   * at the same time wins, and a crash before it leaves an account that nothing
   * refers to.
   */
  async function make(pointer: string, email: string): Promise<string> {
    const ownerId = mintOwnerId(randomBytes);
    const nowMs = String(now());
    const account = accountKey(ownerId);
    const limits = ownerLimitsKey(ownerId);
    const fields = ["email", email, "created_at", nowMs];
    await writer.command(["HSET", account, ...fields]);
    const initial = encodeKey({ limits: defaultLimits.owner });
    await writer.command(["HSET", limits, ...initial]);
    const set = await writer.command(["SET", pointer, ownerId, "NX"]);
    if (set === null) {
      for (const key of [account, limits]) await writer.command(["DEL", key]);
      return asText(await writer.command(["GET", pointer]));
    }
    await writeDurably(writer, ["ZADD", ownersKey, nowMs, ownerId]);
    return ownerId;
  }

  const directory = {
    /** The owner of an address (as {@link parseEmail} returns it), or null. */
    find: (email: string): Promise<string | null> =>
      readText(redis, mailKey(digest(email))),

    /** The owner of an address, created if there is none. */
    ensure: async (email: string): Promise<string> =>
      await directory.find(email) ?? await make(mailKey(digest(email)), email),

    /**
     * The owner of the keys created before the set-up. The person who uses the
     * set-up link becomes this owner and finds those keys in the console.
     */
    first: async (): Promise<string> =>
      await readText(redis, firstOwnerKey) ?? await make(firstOwnerKey, ""),

    /** The owner of an identity: found by issuer and subject, by e-mail address only the first time (ASVS 6.8.1). */
    async ofIdentity(
      { issuer, subject, email }: Identity,
    ): Promise<string> {
      const pointer = identityKey(digest(JSON.stringify([issuer, subject])));
      const known = await readText(redis, pointer);
      if (known !== null) return known;
      const ownerId = await directory.ensure(email);
      await redis.command(["SET", pointer, ownerId, "NX"]);
      return ownerId;
    },

    /** Sets the address of an owner who has none. False when it belongs to another owner. */
    async claim(ownerId: string, email: string): Promise<boolean> {
      const pointer = mailKey(digest(email));
      const set = await writer.command(["SET", pointer, ownerId, "NX"]);
      if (set === null && await readText(writer, pointer) !== ownerId) {
        return false;
      }
      await writeDurably(writer, ["HSET", accountKey(ownerId), "email", email]);
      return true;
    },

    /** The oldest owners, at most `count`. */
    list: async (count: number): Promise<string[]> =>
      asTexts(
        await redis.command(["ZRANGE", ownersKey, "0", String(count - 1)]),
      ),

    /** The limits over all keys of an owner. */
    limits: async (ownerId: string): Promise<Limits> =>
      decodeLimits(await readHash(redis, ownerLimitsKey(ownerId)) ?? {}),

    /** Sets limits that apply from the next request on. */
    setLimits: (ownerId: string, limits: Limits): Promise<void> =>
      writeDurably(
        writer,
        ["HSET", ownerLimitsKey(ownerId), ...encodeKey({ limits })],
      ),
  };
  return directory;
}
