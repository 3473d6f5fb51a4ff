import { RedisAway, type RedisCommands } from "./redis.ts";
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
  redis: RedisCommands,
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
  redis: RedisCommands,
): Promise<Durability> {
  const durability = await detectDurability(redis);
  if (durability !== "waitaof") return durability;
  const [local] = asList(
    await redis.send(
      ["WAITAOF", "1", "0", String(CONFIRM_MS)],
      CONFIRM_MS + 1_000,
    ),
  );
  if (asNumber(local) < 1) {
    throw new NotDurable(
      `Cannot confirm a change: not on the disk of redis after ${CONFIRM_MS} ms`,
    );
  }
  return durability;
}

async function readConfig(redis: RedisCommands): Promise<Map<string, string>> {
  try {
    return asFields(
      await redis.send(["CONFIG", "GET", "append*"]),
    );
  } catch (error) {
    if (error instanceof RedisAway) throw error;
    return new Map(); // CONFIG is forbidden here: nothing is known, so nothing is promised.
  }
}

async function knowsWaitaof(redis: RedisCommands): Promise<boolean> {
  const [info] = asList(await redis.send(["COMMAND", "INFO", "waitaof"]));
  return info !== null;
}
