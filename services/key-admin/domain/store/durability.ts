import { RedisReplyError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asFields, asList, asNumber } from "./redis.ts";

/**
 * How a write survives a loss of power:
 * - `waitaof`: the server reports when it is on disk (Redis >= 8);
 * - `always`: the server answers a write only after it is on disk;
 * - `none`: neither, or unknown.
 */
export type Durability = "waitaof" | "always" | "none";

/** The server has not confirmed that a change is on disk or on its replicas. The change may still hold. */
export class NotDurable extends Error {
  override name = "NotDurable";

  constructor(state: string) {
    super(
      `The change was made, but is ${state} after ${CONFIRM_MS} ms. Check whether it is there before you try again`,
    );
  }
}

const CONFIRM_MS = 3_000;
const REPLICAS = "min-replicas-to-write";
/**
 * The first Redis whose WAITAOF can be trusted. The command exists since 7.2, but
 * with `everysec` Redis 7.4 and every Valkey up to 9.1 answer it when a write has
 * reached the file but not yet the disk (redis/redis#13793).
 */
const WAITAOF_MAJOR_MIN = 8;

export const detectDurability = async (redis: RedisLink): Promise<Durability> =>
  (await askServer(redis)).durability;

/** How the server keeps writes, and on how many replicas it wants them. */
async function askServer(
  redis: RedisLink,
): Promise<{ durability: Durability; replicas: number }> {
  // Redis before 7.0 takes one pattern only.
  const replies = await Promise.all(
    ["append*", REPLICAS].map((pattern) =>
      redis.command(["CONFIG", "GET", pattern]).catch((error) => {
        if (error instanceof RedisReplyError) return [];
        throw error;
      })
    ),
  );
  const config = asFields(replies.flatMap(asList));
  const replicas = Number(config[REPLICAS] ?? 0);
  if (config.appendonly !== "yes") return { durability: "none", replicas };
  if (config.appendfsync === "always") {
    return { durability: "always", replicas };
  }
  // HELLO needs no permission: `["server", "redis", "version", "8.0.2", …]`.
  const hello = asList(await redis.command(["HELLO"])).map(String);
  const after = (name: string) => hello[hello.indexOf(name) + 1] ?? "";
  const isTrusted = after("server") === "redis" &&
    parseInt(after("version")) >= WAITAOF_MAJOR_MIN;
  return { durability: isTrusted ? "waitaof" : "none", replicas };
}

/**
 * Resolves when all earlier writes of this connection, and only of this one, are on
 * disk, if the server can confirm that, and on as many replicas as it wants. The server
 * is asked each time: changes are rare, and its settings may have changed.
 */
export async function confirmDurable(redis: RedisLink): Promise<Durability> {
  const { durability, replicas } = await askServer(redis);
  const wait = (...command: string[]) =>
    redis.command([...command, String(CONFIRM_MS)], {
      deadlineMs: CONFIRM_MS + 1_000,
    });
  if (durability === "waitaof") {
    const [local] = asList(await wait("WAITAOF", "1", "0"));
    if (asNumber(local) < 1) throw new NotDurable("not on the disk of Redis");
  }
  if (replicas > 0) {
    // A replica that has the change can become master without undoing it.
    const reached = asNumber(await wait("WAIT", String(replicas)));
    if (reached < replicas) {
      const state = `on ${reached} of ${replicas} replicas of Redis`;
      throw new NotDurable(state);
    }
  }
  return durability;
}
