import { mintOwnerId } from "@gateway/shared/keys/key";
import { type Limits, ownerLimitsKey } from "@gateway/shared/keys/record";
import type { DefaultLimits } from "../keys/settings.ts";
import { decodeLimits, encodeKey } from "../keys/key_record.ts";
import { writeDurably } from "../store/durability.ts";
import {
  accountKey,
  firstOwnerKey,
  mailKey,
  ownersKey,
} from "../store/names.ts";
import type { StoreDeps } from "../store/redis.ts";
import { asText, asTexts, readHash, readText } from "../store/reply.ts";
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

/** Dependencies of the directory. */
export interface OwnerDirectoryDeps extends StoreDeps {
  defaultLimits: Pick<DefaultLimits, "owner">;
}

/**
 * Who owns keys. An owner exists from the first key or invitation on; signing in
 * also needs a password. `store/names.ts` has the layout in Redis.
 */
export class OwnerDirectory {
  readonly #deps: OwnerDirectoryDeps;

  constructor(deps: OwnerDirectoryDeps) {
    this.#deps = deps;
  }

  /** The owner of an address (as {@link parseEmail} returns it), or null. */
  async find(email: string): Promise<string | null> {
    return await readText(this.#deps.redis, mailKey(digest(email)));
  }

  /** The owner of an address, created if there is none. */
  async ensure(email: string): Promise<string> {
    return await this.find(email) ??
      await this.#make(mailKey(digest(email)), email);
  }

  /**
   * The owner of the keys created before the set-up. The person who uses the set-up
   * link becomes this owner and finds those keys in the console.
   */
  async first(): Promise<string> {
    return await readText(this.#deps.redis, firstOwnerKey) ??
      await this.#make(firstOwnerKey, "");
  }

  /** Sets the address of an owner who has none. False when it belongs to another owner. */
  async claim(ownerId: string, email: string): Promise<boolean> {
    const { writer } = this.#deps;
    const pointer = mailKey(digest(email));
    const set = await writer.command(["SET", pointer, ownerId, "NX"]);
    if (set === null && await readText(writer, pointer) !== ownerId) {
      return false;
    }
    await writeDurably(writer, ["HSET", accountKey(ownerId), "email", email]);
    return true;
  }

  /** The oldest owners, at most `count`. */
  async list(count: number): Promise<string[]> {
    const range = ["ZRANGE", ownersKey, "0", String(count - 1)];
    return asTexts(await this.#deps.redis.command(range));
  }

  /** The limits over all keys of an owner. */
  async limits(ownerId: string): Promise<Limits> {
    return decodeLimits(
      await readHash(this.#deps.redis, ownerLimitsKey(ownerId)),
    );
  }

  /** Sets limits that apply from the next request on. */
  async setLimits(ownerId: string, limits: Limits): Promise<void> {
    const command = ["HSET", ownerLimitsKey(ownerId), ...encodeKey({ limits })];
    await writeDurably(this.#deps.writer, command);
  }

  /**
   * The pointer to the owner is written last and only once: one of several calls
   * at the same time wins, and a crash before it leaves an account that nothing
   * refers to.
   */
  async #make(pointer: string, email: string): Promise<string> {
    const { writer, randomBytes, now, defaultLimits } = this.#deps;
    const ownerId = mintOwnerId(randomBytes);
    const nowMs = String(now());
    const account = accountKey(ownerId);
    const limits = ownerLimitsKey(ownerId);
    await writer.command(
      ["HSET", account, "email", email, "created_at", nowMs],
    );
    await writer.command(
      ["HSET", limits, ...encodeKey({ limits: defaultLimits.owner })],
    );
    const set = await writer.command(["SET", pointer, ownerId, "NX"]);
    if (set === null) {
      for (const key of [account, limits]) await writer.command(["DEL", key]);
      return asText(await writer.command(["GET", pointer]));
    }
    await writeDurably(writer, ["ZADD", ownersKey, nowMs, ownerId]);
    return ownerId;
  }
}
