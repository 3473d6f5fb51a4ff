import { RedisReplyError } from "@gateway/shared/redis/errors";
import type { RedisLink, RedisReply } from "@gateway/shared/redis/link";
import { asFields, asList, asNumber } from "./redis.ts";

/**
 * How a change of a key survives a loss of power:
 * - `switched`: `appendfsync` is switched to `always` while a key changes;
 * - `always`: the operator has set that for all writes;
 * - `none`: neither is possible, or unknown.
 *
 * With `always`, Redis answers a write only after it is on disk. That halves the
 * requests that edges can admit, whose counters may well lose the last second.
 * WAITAOF is not used: it waits up to a second for the next flush, and Redis 7.4 and
 * every Valkey up to 9.1 answer it before the write is on disk (redis/redis#13793).
 */
export type Durability = "switched" | "always" | "none";

/** The server has not confirmed that a change is on disk or on its replicas. The change may still hold. */
export class NotDurable extends Error {
  override name = "NotDurable";
}

/**
 * Who needs `always` now: a mark for each change in progress, by the time in ms at
 * which it began. Whoever finds none switches back to `everysec`, and deletes the key.
 */
const SWITCH_KEY = "fsync";
const ON = ["CONFIG", "SET", "appendfsync", "always"];
const OFF = ["CONFIG", "SET", "appendfsync", "everysec"];
const CONFIRM_MS = 3_000;
/** A mark that is older belongs to a process that was killed. */
const MARK_MS_MAX = 30_000;
/** More are needed only if others switch back at the same moments. */
const ATTEMPTS_MAX = 100;

export const detectDurability = async (redis: RedisLink): Promise<Durability> =>
  (await askServer(redis)).durability;

/** Asked at each change: changes are rare, and an operator may have changed the settings. */
async function askServer(
  redis: RedisLink,
): Promise<{ durability: Durability; replicas: number }> {
  const replicasName = "min-replicas-to-write";
  const ask = (...command: string[]) =>
    redis.command(command).catch((error: unknown) => {
      if (error instanceof RedisReplyError) return error.message;
      throw error;
    });
  // Redis before 7.0 takes one pattern only. An invalid value changes nothing, but a
  // user who may set it is told so.
  const [file, wanted, refusal, marks] = await Promise.all([
    ask("CONFIG", "GET", "append*"),
    ask("CONFIG", "GET", replicasName),
    ask("CONFIG", "SET", "appendfsync", "?"),
    ask("ZCARD", SWITCH_KEY),
  ]);
  const config = asFields([file, wanted].flatMap(listOrNothing));
  const replicas = Number(config[replicasName] ?? 0);
  const maySwitch = /appendfsync/.test(String(refusal)) &&
    typeof marks === "number";
  if (config.appendonly !== "yes") return { durability: "none", replicas };
  if (config.appendfsync === "always" && !(maySwitch && marks > 0)) {
    return { durability: "always", replicas };
  }
  return { durability: maySwitch ? "switched" : "none", replicas };
}

const listOrNothing = (reply: RedisReply) =>
  Array.isArray(reply) ? asList(reply) : [];

/**
 * Runs `write`, which changes keys or owners over this connection, and resolves when
 * all of it is on disk, if the server can do that, and on as many replicas as its
 * `min-replicas-to-write` says. Throws {@link NotDurable} if it is not.
 */
export async function durably<T>(
  redis: RedisLink,
  write: () => Promise<T>,
): Promise<T> {
  const { durability, replicas } = await askServer(redis);
  const result = durability === "switched"
    ? await withSwitch(redis, write)
    : await write();
  if (replicas > 0) await waitForReplicas(redis, replicas);
  return result;
}

async function withSwitch<T>(
  redis: RedisLink,
  write: () => Promise<T>,
): Promise<T> {
  const mark = crypto.randomUUID();
  const switchOn = async () => {
    // Sent together. The mark is a write itself, so the reply to the second comes after a flush.
    const time = String(Date.now());
    await Promise.all(
      [["ZADD", SWITCH_KEY, time, mark], ON].map((each) => redis.command(each)),
    );
  };
  const isMarked = async () =>
    await redis.command(["ZSCORE", SWITCH_KEY, mark]) !== null;
  await switchOn();
  try {
    const result = await write();
    // While the mark is there, nobody has switched back since it was set: the server
    // has flushed the write before it answered. Otherwise, flush it now.
    for (let left = ATTEMPTS_MAX; !await isMarked(); left -= 1) {
      if (left === 0) throw notDurable("not on the disk of Redis");
      await switchOn();
    }
    return result;
  } finally {
    await switchBack(redis, mark);
  }
}

/** Removes a mark, and switches back if no other is left. Without an answer, `always` stays, which is slower but safe. */
async function switchBack(redis: RedisLink, mark: string): Promise<void> {
  const oldest = String(Date.now() - MARK_MS_MAX);
  try {
    const [, others] = await Promise.all([
      redis.command(["ZREM", SWITCH_KEY, mark]),
      redis.command(["ZCOUNT", SWITCH_KEY, oldest, "+inf"]),
    ]);
    if (others !== 0) return;
    // A change that has begun in the meantime misses its mark, and flushes again.
    const together = [["MULTI"], ["DEL", SWITCH_KEY], OFF, ["EXEC"]];
    await Promise.all(together.map((each) => redis.command(each)));
  } catch {
    // The change is made and on disk. The next one switches back.
  }
}

async function waitForReplicas(
  redis: RedisLink,
  replicas: number,
): Promise<void> {
  // WAIT covers the writes of its own connection only.
  const line = ["WAIT", String(replicas), String(CONFIRM_MS)];
  const deadlineMs = CONFIRM_MS + 1_000;
  const reached = asNumber(await redis.command(line, { deadlineMs }));
  // A replica that has the change can become master without undoing it.
  if (reached < replicas) {
    throw notDurable(
      `on ${reached} of ${replicas} replicas of Redis after ${CONFIRM_MS} ms`,
    );
  }
}

const notDurable = (state: string) =>
  new NotDurable(
    `The change was made, but is ${state}. Check whether it is there before you try again`,
  );
