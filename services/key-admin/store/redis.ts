import { createClient } from "redis";
import type { Log } from "@gateway/shared/log";

/** The one thing the stores need of Redis. Replies are parsed by `reply.ts`, so they are unknown here. */
export interface RedisCommands {
  /**
   * Sends one command and gives its reply. Rejects with {@link RedisAway} when
   * there is no connection or no answer within the deadline, and with the
   * server's own error otherwise.
   */
  send(args: readonly string[], deadlineMs?: number): Promise<unknown>;
}

/** A connection that somebody must close. */
export interface RedisConnection extends RedisCommands {
  isReady(): boolean;
  close(): void;
}

/** Redis gave no answer in time. Whether the command took effect is unknown. */
export class RedisAway extends Error {
  override name = "RedisAway";
}

/** Longest wait for an ordinary answer: pages are read by people, so longer than at an edge. */
const DEADLINE_MS = 2_000;
const CONNECT_MS = 2_000;
const RECONNECT_MS_MAX = 1_000;

/**
 * Connects to `url` and keeps the connection up. Resolves once the first
 * connection stands and rejects when it cannot be made. Commands never wait for
 * a reconnection: they fail at once.
 */
export async function connectRedis(
  url: string,
  log: Log,
): Promise<RedisConnection> {
  let hasConnected = false;
  const client = createClient({
    url,
    RESP: 2,
    disableOfflineQueue: true,
    socket: {
      connectTimeout: CONNECT_MS,
      reconnectStrategy: (tries, cause) =>
        hasConnected ? Math.min(50 * 2 ** tries, RECONNECT_MS_MAX) : cause,
    },
  });
  client.on("error", (error) => log.warn("redis_error", { error }));
  client.on("ready", () => log.debug("redis_ready"));
  try {
    await client.connect();
  } catch (cause) {
    throw new RedisAway(
      `Cannot connect to redis at "${withoutPassword(url)}"`,
      {
        cause,
      },
    );
  }
  hasConnected = true;
  return {
    send: (args, deadlineMs = DEADLINE_MS) =>
      client.isReady
        ? withDeadline(client.sendCommand([...args]), deadlineMs, args[0] ?? "")
        : Promise.reject(new RedisAway("Cannot reach redis: not connected")),
    isReady: () => client.isReady,
    close: () => client.destroy(),
  };
}

/** The URL as it may be logged. */
export function withoutPassword(url: string): string {
  const parsed = URL.parse(url);
  if (parsed === null) return "(not a URL)";
  if (parsed.password !== "") parsed.password = "…";
  return parsed.href;
}

async function withDeadline<T>(
  answer: Promise<T>,
  deadlineMs: number,
  command: string,
): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(
        new RedisAway(
          `Cannot run ${command} on redis: no answer after ${deadlineMs} ms`,
        ),
      );
    }, deadlineMs);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
