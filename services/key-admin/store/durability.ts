import { RedisReplyError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asFields, asList, asNumber } from "./reply.ts";

/**
 * How a write survives loss of power:
 * - `waitaof`: the server says when it is on disk (Redis >= 7.2, Valkey);
 * - `always`: the server answers a write only after it is on disk;
 * - `none`: it does not, or does not tell.
 */
export type Durability = "waitaof" | "always" | "none";

/** The server did not confirm that a change is on disk. The change may still hold. */
export class NotDurable extends Error {
  override name = "NotDurable";
}

const CONFIRM_MS = 3_000;

/** Finds out what the server offers. An old server or a forbidden command counts as "does not". */
export async function detectDurability(
  redis: RedisLink,
): Promise<Durability> {
  const config = await readConfig(redis);
  if (config.get("appendonly") !== "yes") return "none";
  if (config.get("appendfsync") === "always") return "always";
  return await knowsWaitaof(redis) ? "waitaof" : "none";
}

/**
 * Resolves when everything that was written over this connection before is on
 * disk, as far as the server offers it. Must go over the same connection as the
 * write: WAITAOF speaks of the writes of its own connection.
 *
 * The server is asked each time and not trusted from the start of the process:
 * lifecycle changes are rare, and somebody may have changed its settings.
 */
export async function confirmDurable(
  redis: RedisLink,
): Promise<Durability> {
  const durability = await detectDurability(redis);
  if (durability !== "waitaof") return durability;
  const [local] = asList(
    await redis.command(
      ["WAITAOF", "1", "0", String(CONFIRM_MS)],
      { deadlineMs: CONFIRM_MS + 1_000 },
    ),
  );
  if (asNumber(local) < 1) {
    throw new NotDurable(
      `Cannot confirm a change: not on the disk of redis after ${CONFIRM_MS} ms`,
    );
  }
  return durability;
}

async function readConfig(redis: RedisLink): Promise<Map<string, string>> {
  try {
    return asFields(
      await redis.command(["CONFIG", "GET", "append*"]),
    );
  } catch (error) {
    // CONFIG is forbidden here: nothing is known, so nothing is promised.
    if (error instanceof RedisReplyError) return new Map();
    throw error;
  }
}

async function knowsWaitaof(redis: RedisLink): Promise<boolean> {
  const [info] = asList(await redis.command(["COMMAND", "INFO", "waitaof"]));
  return info !== null;
}
