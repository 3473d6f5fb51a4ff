import { STORE_KEY } from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";

export interface StoreWatchOptions {
  redis: RedisLink;
  log: Log;
  /** What Redis holds is not what it held: what was remembered of it is void. */
  onChanged: () => void;
}

/**
 * Watches whether Redis still holds the data it held. A server that answers and
 * has lost its data looks like one that knows no key, and one that got other data
 * may know a key that was unknown: the first is told in one log line,
 * `key_store`, and the second makes the edge ask again.
 */
export interface StoreWatch {
  /** Tells what an answer of Redis said: the name of its data, null where it has none. */
  saw(name: string | null): void;
  start(): void;
  stop(): void;
}

/** Makes a watch that has not looked yet. */
export function createStoreWatch(
  { redis, log, onChanged }: StoreWatchOptions,
): StoreWatch {
  /** Undefined: nothing is known yet. */
  let known: string | null | undefined;
  let timer: ReturnType<typeof setInterval> | null = null;

  const saw = (name: string | null) => {
    if (name === known) return;
    const from = wordOf(known);
    const to = known !== undefined && known !== null && name !== null
      ? "replaced"
      : wordOf(name);
    known = name;
    onChanged();
    if (to === "missing") {
      log.warn("key_store", {
        from,
        to,
        meaning: "redis holds no keys: no key was made yet, or data was lost",
      });
    } else if (from !== "unknown") {
      log.info("key_store", { from, to });
    }
  };

  const look = () => {
    if (redis.state !== "ready") return;
    redis.command(["GET", STORE_KEY]).then(
      (name) => saw(name === null ? null : String(name)),
      () => {
        // What is wrong with Redis is the link's to say; the next look comes soon.
      },
    );
  };

  return {
    saw,
    start() {
      look();
      timer ??= setInterval(look, KEY_LIMITS.storeWatchMs);
    },
    stop() {
      if (timer !== null) clearInterval(timer);
      timer = null;
    },
  };
}

function wordOf(name: string | null | undefined): string {
  if (name === undefined) return "unknown";
  return name === null ? "missing" : "present";
}
