import { mintOwnerId } from "@gateway/shared/keys/key";
import type { RandomBytes } from "@gateway/shared/process/ids";
import type { WallNow } from "@gateway/shared/process/clock";
import { ownerLimitsKey } from "@gateway/shared/keys/record";
import type { DefaultLimits } from "../keys/default_limits.ts";
import { encodeLimits } from "../keys/key_record.ts";
import { confirmDurable } from "../store/durability.ts";
import {
  accountKey,
  firstOwnerKey,
  mailKey,
  ownersKey,
} from "../store/names.ts";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asText, asTextOrNull, asTexts } from "../store/reply.ts";
import { digest } from "../store/secret.ts";

/** Who owns keys. An owner exists from the first key or invitation on; signing in needs a password besides. */
export interface OwnerDirectory {
  /** The owner of an address (as `parseEmail` gives it), or null. */
  find(email: string): Promise<string | null>;
  /** The owner of an address, made if there is none. */
  ensure(email: string): Promise<string>;
  /**
   * The owner of what was made before anybody signed up. Whoever uses the set-up
   * link becomes this owner, and so finds those keys in the console.
   */
  first(): Promise<string>;
  /** Gives the owner without an address its address. False when the address belongs to somebody. */
  claim(ownerId: string, email: string): Promise<boolean>;
  /** Owners by age, at most `count`, from `offset` on. */
  list(offset: number, count: number): Promise<string[]>;
}

/** What the directory needs. */
export interface OwnerDirectoryDeps {
  redis: RedisLink;
  writer: RedisLink;
  randomBytes: RandomBytes;
  now: WallNow;
  defaultLimits: Pick<DefaultLimits, "owner">;
}

/** The directory on Redis, see `store/names.ts` for its layout. */
export function createOwnerDirectory(deps: OwnerDirectoryDeps): OwnerDirectory {
  const { redis, writer } = deps;
  const find = async (email: string) =>
    asTextOrNull(await redis.command(["GET", mailKey(digest(email))]));
  return {
    find,
    ensure: async (email) =>
      await find(email) ??
        await makeOwner(deps, mailKey(digest(email)), email),
    first: async () =>
      asTextOrNull(await redis.command(["GET", firstOwnerKey])) ??
        await makeOwner(deps, firstOwnerKey, ""),
    claim: async (ownerId, email) => {
      const pointer = mailKey(digest(email));
      const set = await writer.command(["SET", pointer, ownerId, "NX"]);
      const isOurs = set !== null ||
        asText(await writer.command(["GET", pointer])) === ownerId;
      if (!isOurs) return false;
      await writer.command(["HSET", accountKey(ownerId), "email", email]);
      await confirmDurable(writer);
      return true;
    },
    list: async (offset, count) =>
      asTexts(
        await redis.command(
          ["ZRANGE", ownersKey, String(offset), String(offset + count - 1)],
        ),
      ),
  };
}

/**
 * The pointer that names the owner is written last and only once: of two that
 * make the same owner at the same time one wins, and a crash before it leaves an
 * account nobody can reach.
 */
async function makeOwner(
  { writer, randomBytes, now, defaultLimits }: OwnerDirectoryDeps,
  pointer: string,
  email: string,
): Promise<string> {
  const ownerId = mintOwnerId(randomBytes);
  const nowMs = String(now());
  const account = accountKey(ownerId);
  const limits = ownerLimitsKey(ownerId);
  await writer.command(["HSET", account, "email", email, "created_at", nowMs]);
  await writer.command(["HSET", limits, ...encodeLimits(defaultLimits.owner)]);
  const set = await writer.command(["SET", pointer, ownerId, "NX"]);
  if (set === null) {
    await writer.command(["DEL", account]);
    await writer.command(["DEL", limits]);
    return asText(await writer.command(["GET", pointer]));
  }
  await writer.command(["ZADD", ownersKey, nowMs, ownerId]);
  await confirmDurable(writer);
  return ownerId;
}
