import type { WallNow } from "@gateway/shared/process/clock";
import type { RandomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import { defineScript } from "@gateway/shared/redis/script";
import { sessionKey, sessionsKey } from "../store/names.ts";
import { asFields, asTexts } from "../store/reply.ts";
import { digest, isSecret, mintSecret } from "../store/secret.ts";
import { decodeSession, type Session } from "./session_record.ts";

/** Times of a session (ASVS 7.3.1, 7.3.2). */
export const SESSION_LIMITS = {
  /** Without any request. */
  idleMs: 30 * 60_000,
  /** However busy it is. */
  absoluteMs: 12 * 3_600_000,
  /** Age of the last password check beyond which making and deleting a key asks again. */
  freshMs: 3_600_000,
} as const;

/** The time of the last request is stored at most this often. */
const SEEN_EVERY_MS = 30_000;

const USER_AGENT_CHARS_MAX = 200;

/** More sessions than anybody has; the oldest are not shown. */
const SESSIONS_SHOWN_MAX = 100;

/** Where a request came from. */
export interface Client {
  ip: string;
  userAgent: string;
}

/** Who is signed in. The cookie's value is never stored. */
export interface SessionStore {
  /** A new session with a new value for the cookie. */
  start(ownerId: string, client: Client): Promise<string>;
  /** The session of a cookie if it is still good; counts as a use of it. */
  find(cookie: string): Promise<Session | null>;
  /** The password was entered again. */
  markChecked(sessionId: string): Promise<void>;
  /** An owner's good sessions, most recently used first. */
  list(ownerId: string): Promise<Session[]>;
  /** Ends one session of the owner. False when it is not the owner's. */
  end(ownerId: string, sessionId: string): Promise<boolean>;
  /** Ends all sessions of the owner but one. */
  endOthers(ownerId: string, sessionId: string | null): Promise<number>;
}

/** What the session store needs. */
export interface SessionStoreDeps {
  redis: RedisLink;
  randomBytes: RandomBytes;
  now: WallNow;
}

/** Sessions in Redis. They need not survive a loss of power. */
export function createSessionStore(deps: SessionStoreDeps): SessionStore {
  return {
    start: (ownerId, client) => start(deps, ownerId, client),
    find: (cookie) => find(deps, cookie),
    markChecked: async (sessionId) => {
      await deps.redis.evalScript(CHECKED_SCRIPT, [sessionKey(sessionId)], [
        String(deps.now()),
      ]);
    },
    list: (ownerId) => list(deps, ownerId),
    end: (ownerId, sessionId) => end(deps, ownerId, sessionId),
    endOthers: (ownerId, sessionId) => endOthers(deps, ownerId, sessionId),
  };
}

async function start(
  { redis, randomBytes, now }: SessionStoreDeps,
  ownerId: string,
  { ip, userAgent }: Client,
): Promise<string> {
  const cookie = mintSecret(randomBytes);
  const id = digest(cookie);
  const nowText = String(now());
  const lifeSeconds = String(SESSION_LIMITS.absoluteMs / 1_000);
  await redis.command([
    ...[
      "HSET",
      sessionKey(id),
      "owner",
      ownerId,
      "form",
      mintSecret(randomBytes),
    ],
    ...["created", nowText, "seen", nowText, "checked", nowText],
    ...["ip", ip, "agent", userAgent.slice(0, USER_AGENT_CHARS_MAX)],
  ]);
  await redis.command(["EXPIRE", sessionKey(id), lifeSeconds]);
  await redis.command(["ZADD", sessionsKey(ownerId), nowText, id]);
  await redis.command(["EXPIRE", sessionsKey(ownerId), lifeSeconds]);
  return cookie;
}

async function find(
  deps: SessionStoreDeps,
  cookie: string,
): Promise<Session | null> {
  if (!isSecret(cookie)) return null;
  const session = await read(deps, digest(cookie));
  if (session === null) return null;
  const nowMs = deps.now();
  if (nowMs - session.seenAtMs >= SEEN_EVERY_MS) {
    await deps.redis.evalScript(TOUCH_SCRIPT, [sessionKey(session.id)], [
      String(nowMs),
    ]);
  }
  return session;
}

async function read(
  { redis, now }: SessionStoreDeps,
  id: string,
): Promise<Session | null> {
  const fields = asFields(await redis.command(["HGETALL", sessionKey(id)]));
  if (fields.size === 0) return null;
  const session = decodeSession(id, fields);
  const nowMs = now();
  const isOver = nowMs - session.seenAtMs >= SESSION_LIMITS.idleMs ||
    nowMs - session.createdAtMs >= SESSION_LIMITS.absoluteMs;
  return isOver ? null : session;
}

async function list(
  deps: SessionStoreDeps,
  ownerId: string,
): Promise<Session[]> {
  const ids = asTexts(
    await deps.redis.command([
      ...["ZREVRANGE", sessionsKey(ownerId), "0"],
      String(SESSIONS_SHOWN_MAX - 1),
    ]),
  );
  const sessions = await Promise.all(ids.map((id) => read(deps, id)));
  return sessions
    .filter((session) => session !== null)
    .filter((session) => session.ownerId === ownerId)
    .sort((a, b) => b.seenAtMs - a.seenAtMs);
}

async function end(
  { redis }: SessionStoreDeps,
  ownerId: string,
  sessionId: string,
): Promise<boolean> {
  const record = sessionKey(sessionId);
  const holder = asFields(await redis.command(["HGETALL", record]));
  if ((holder.get("owner") ?? ownerId) !== ownerId) return false;
  // In this order: one that still works must still be listed, to be ended again.
  await redis.command(["DEL", record]);
  return await redis.command(["ZREM", sessionsKey(ownerId), sessionId]) === 1;
}

async function endOthers(
  deps: SessionStoreDeps,
  ownerId: string,
  sessionId: string | null,
): Promise<number> {
  const ids = asTexts(
    await deps.redis.command(["ZRANGE", sessionsKey(ownerId), "0", "-1"]),
  );
  const others = ids.filter((id) => id !== sessionId);
  for (const id of others) await end(deps, ownerId, id);
  return others.length;
}

/** Notes a use, but does not bring back a session that was ended meanwhile. */
const TOUCH_SCRIPT = defineScript(
  "key-admin/touch",
  `
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
return redis.call('HSET', KEYS[1], 'seen', ARGV[1])
`,
);

/** Notes that the password was entered, under the same condition. */
const CHECKED_SCRIPT = defineScript(
  "key-admin/checked",
  `
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
return redis.call('HSET', KEYS[1], 'checked', ARGV[1])
`,
);
