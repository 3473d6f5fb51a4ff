import { type Limits, ownerLimitsKey } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { decodeLimits, encodeLimits } from "../keys/key_record.ts";
import { confirmDurable } from "../store/durability.ts";
import { asFields } from "../store/reply.ts";

/** Limits over all keys of one owner. They hold from the next request on. */
export interface OwnerLimits {
  read(ownerId: string): Promise<Limits>;
  write(ownerId: string, limits: Limits): Promise<void>;
}

/** The limits on Redis, where the edges' admission reads them. */
export function createOwnerLimits(
  { redis, writer }: { redis: RedisLink; writer: RedisLink },
): OwnerLimits {
  return {
    read: async (ownerId) =>
      decodeLimits(
        asFields(await redis.command(["HGETALL", ownerLimitsKey(ownerId)])),
      ),
    write: async (ownerId, limits) => {
      await writer.command(
        ["HSET", ownerLimitsKey(ownerId), ...encodeLimits(limits)],
      );
      await confirmDurable(writer);
    },
  };
}
