/** Makes sure that a change survives a loss of power before it is acknowledged. */
import { RedisReplyError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { RedisReply } from "@gateway/shared/redis/connection";
import { asFields, asList, asNumber } from "./redis.ts";

/**
 * How a change of a key survives a loss of power:
 * - `switched`: `appendfsync` is switched to `always` until the change is on disk;
 * - `always`: the operator has set that for all writes;
 * - `none`: neither is possible, or unknown.
 *
 * With `always`, Redis answers a write only after all writes so far are on disk. That
 * halves the requests that edges can admit, whose counters may well lose the last
 * second. WAITAOF is not used: it waits up to a second for the next flush, and Redis
 * 7.4 and every Valkey up to 9.1 answer it before the write is on disk
 * (redis/redis#13793).
 */
export type Durability = "switched" | "always" | "none";

/**
 * The server has not confirmed that a change is on disk or on its replicas. The change
 * may still hold.
 */
export class NotDurable extends Error {
  override name = "NotDurable";

  constructor(state: string) {
    super(
      `The change was made, but is ${state}. Check whether it is there before you try again`,
    );
  }
}

/**
 * A mark for each flush in progress. Whoever switches back to `everysec` deletes all of
 * them.
 */
const MARKS_KEY = "fsync";
const ON = ["CONFIG", "SET", "appendfsync", "always"];
const OFF = ["CONFIG", "SET", "appendfsync", "everysec"];
const CONFIRM_MS = 3_000;
/** More than one is needed only if other processes switch back at the same moments. */
const ATTEMPTS_MAX = 300;

/**
 * How a change survives a loss of power on this server, by its settings of now and by
 * what this user may set. Throws `RedisUnavailableError`.
 */
export const detectDurability = async (redis: RedisLink): Promise<Durability> =>
  (await askServer(redis)).durability;

/**
 * It runs after each change: changes are rare, and an operator may have changed the
 * settings of Redis.
 */
async function askServer(redis: RedisLink) {
  const replicasName = "min-replicas-to-write";
  const ask = (...command: string[]) =>
    redis.command(command).catch((error: unknown) => {
      if (error instanceof RedisReplyError) return error.message;
      throw error;
    });
  // Redis before 7.0 takes one pattern only. An invalid value changes nothing, but the
  // reply shows whether this user may set it.
  const [file, replicas, refusal, marks] = await Promise.all([
    ask("CONFIG", "GET", "*append*"),
    ask("CONFIG", "GET", replicasName),
    ask("CONFIG", "SET", "appendfsync", "?"),
    ask("SCARD", MARKS_KEY),
  ]);
  const config = asFields([file, replicas].flatMap(listOrNothing));
  const maySwitch = /appendfsync/.test(String(refusal)) &&
    typeof marks === "number";
  const isAlways = config.appendfsync === "always" &&
    !(maySwitch && marks > 0);
  const isKept = config.appendonly === "yes" &&
    config["no-appendfsync-on-rewrite"] !== "yes";
  let durability: Durability = "none";
  if (isKept && isAlways) durability = "always";
  else if (isKept && maySwitch) durability = "switched";
  return { durability, replicas: Number(config[replicasName] ?? 0) };
}

const listOrNothing = (reply: RedisReply) =>
  Array.isArray(reply) ? asList(reply) : [];

/**
 * Makes a function that resolves when all that was written over this connection is on
 * disk, if the server can do that, and on as many replicas as its
 * `min-replicas-to-write` says. It throws {@link NotDurable} if it is not. One flush
 * serves all calls before it begins.
 */
export function createPersist(redis: RedisLink): () => Promise<void> {
  /** The flush that has not begun, which all further calls share. */
  let waiting: Promise<void> | null = null;
  let last = Promise.resolve();
  async function persistAfter(previous: Promise<void>): Promise<void> {
    // Its own callers learn that it failed.
    await previous.catch(() => {});
    waiting = null;
    const { durability, replicas } = await askServer(redis);
    if (durability === "switched") await flush(redis);
    if (replicas > 0) await waitForReplicas(redis, replicas);
  }
  return () => {
    if (waiting === null) {
      last = persistAfter(last);
      waiting = last;
    }
    return waiting;
  };
}

async function flush(redis: RedisLink): Promise<void> {
  const mark = crypto.randomUUID();
  for (let left = ATTEMPTS_MAX; left > 0; left -= 1) {
    // The mark is a write itself, so the reply comes after a flush, unless another
    // process switches back at the same moment, and deletes the mark.
    await atOnce(redis, ["SADD", MARKS_KEY, mark], ON);
    const [isMarked] = await Promise.all([
      redis.command(["SREM", MARKS_KEY, mark]),
      // Without an answer, `always` stays until the next change, which is slower but
      // safe.
      atOnce(redis, ["DEL", MARKS_KEY], OFF).catch(() => {}),
    ]);
    if (isMarked === 1) return;
  }
  throw new NotDurable("not on the disk of Redis");
}

/** Runs commands in one transaction. */
const atOnce = (redis: RedisLink, ...commands: string[][]) =>
  Promise.all(
    [["MULTI"], ...commands, ["EXEC"]].map((each) => redis.command(each)),
  );

async function waitForReplicas(redis: RedisLink, replicas: number) {
  // WAIT covers the writes of its own connection only.
  const line = ["WAIT", String(replicas), String(CONFIRM_MS)];
  const deadlineMs = CONFIRM_MS + 1_000;
  const reached = asNumber(await redis.command(line, { deadlineMs }));
  // A replica that has the change can become master without undoing it.
  if (reached < replicas) {
    throw new NotDurable(
      `on ${reached} of ${replicas} replicas of Redis after ${CONFIRM_MS} ms`,
    );
  }
}
