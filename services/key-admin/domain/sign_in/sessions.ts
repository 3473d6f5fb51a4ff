import { z } from "zod";
import { KeyRefused, type KeyStore } from "../keys/key_store.ts";
import { asTexts, readHash, type StoreDeps } from "../store/redis.ts";
import { digest, isSecret, mintSecret } from "../store/secret.ts";

/** Times of a session (ASVS 7.3.1, 7.3.2). */
export const SESSION_LIMITS = {
  /** A session ends after this long without a request. */
  idleMs: 30 * 60_000,
  /** A session ends after this long in any case. */
  absoluteMs: 12 * 3_600_000,
  /**
   * Creating or deleting a key asks for the password again if it was last entered
   * longer ago.
   */
  freshMs: 3_600_000,
} as const;

/** The time of the last request is stored at most this often. */
const SEEN_EVERY_MS = 30_000;
const USER_AGENT_CHARS_MAX = 200;
/** The oldest beyond these are not shown. */
const SESSIONS_SHOWN_MAX = 100;

const stored = z.object({
  ownerId: z.string(),
  createdAtMs: z.coerce.number(),
  seenAtMs: z.coerce.number(),
  /** When the password was last entered, here or at the provider; 0: unknown. */
  checkedAtMs: z.coerce.number(),
  ip: z.string(),
  userAgent: z.string(),
  /** A second factor that is being set up; empty: none. */
  totpSecret: z.string().default(""),
  /** The key of the page "Try it", see `try/key.ts`; empty: none. */
  tryKeyId: z.string().default(""),
});
type Stored = z.infer<typeof stored>;

export interface Session extends Stored {
  /** Digest of the cookie. It identifies a session but does not authenticate. */
  id: string;
}

export type Client = Pick<Session, "ip" | "userAgent">;

/** Whom the audit log names for what ends with a session. */
const ENDED = { by: "end of the session", ip: "" };

const sessionKey = (id: string) => `sess:${id}`;
const sessionsKey = (ownerId: string) => `sessions:{${ownerId}}`;
const LIFE_SECONDS = String(SESSION_LIMITS.absoluteMs / 1_000);

/**
 * Who is signed in. Sessions need not survive a loss of power, and a cookie's value is
 * never stored.
 */
export type SessionStore = ReturnType<typeof createSessionStore>;

export function createSessionStore(
  { redis, randomBytes, now, keys }: Omit<StoreDeps, "writer"> & {
    keys: Pick<KeyStore, "delete">;
  },
) {
  const read = async (id: string): Promise<Session | null> => {
    const fields = await readHash(redis, sessionKey(id));
    const session = stored.safeParse(fields).data;
    // It has ended, or an earlier version of this service stored it in a different
    // form.
    if (session === undefined) return null;
    const isOver = now() - session.seenAtMs >= SESSION_LIMITS.idleMs ||
      now() - session.createdAtMs >= SESSION_LIMITS.absoluteMs;
    return isOver ? null : { id, ...session };
  };

  const idsOf = async (ownerId: string, most = 0) => {
    const range = [sessionsKey(ownerId), "0", String(most - 1)];
    return asTexts(await redis.command(["ZREVRANGE", ...range]));
  };

  const store = {
    /**
     * Starts a session and returns the value of its cookie. `provedAtMs` is when its
     * owner last proved who they are, by default now.
     */
    async start(
      ownerId: string,
      { ip, userAgent }: Client,
      { provedAtMs = now() }: { provedAtMs?: number } = {},
    ): Promise<string> {
      const cookie = mintSecret(randomBytes);
      const id = digest(cookie);
      const nowMs = now();
      await store.update(id, {
        ownerId,
        ip,
        createdAtMs: nowMs,
        seenAtMs: nowMs,
        checkedAtMs: provedAtMs,
        userAgent: userAgent.slice(0, USER_AGENT_CHARS_MAX),
      });
      const list = sessionsKey(ownerId);
      await redis.command(["ZADD", list, String(nowMs), id]);
      await redis.command(["EXPIRE", list, LIFE_SECONDS]);
      return cookie;
    },

    /** The session of a cookie if it has not ended; counts as a use of it. */
    async find(cookie: string): Promise<Session | null> {
      if (!isSecret(cookie)) return null;
      const session = await read(digest(cookie));
      if (session !== null && now() - session.seenAtMs >= SEEN_EVERY_MS) {
        await store.update(session.id, { seenAtMs: now() });
      }
      return session;
    },

    /**
     * Stores the given members. If the session has ended in the meantime, they form no
     * valid session, and expire.
     */
    async update(id: string, members: Partial<Stored>): Promise<void> {
      const fields = Object.entries(members).flat().map(String);
      await redis.command(["HSET", sessionKey(id), ...fields]);
      await redis.command(["EXPIRE", sessionKey(id), LIFE_SECONDS]);
    },

    /** The sessions of an owner that have not ended, most recently used first. */
    async list(ownerId: string): Promise<Session[]> {
      const ids = await idsOf(ownerId, SESSIONS_SHOWN_MAX);
      const sessions = await Promise.all(ids.map(read));
      return sessions.filter((session) => session !== null)
        .sort((a, b) => b.seenAtMs - a.seenAtMs);
    },

    /**
     * Ends one session of the owner, and its key of the page "Try it". False when it is
     * not the owner's.
     */
    async end(ownerId: string, sessionId: string): Promise<boolean> {
      const record = sessionKey(sessionId);
      const { ownerId: holder = ownerId, tryKeyId: keyId = "" } =
        await readHash(redis, record) ?? {};
      if (holder !== ownerId) return false;
      // In this order, because a session that still works must stay in the list from
      // which it can be ended.
      await redis.command(["DEL", record]);
      const list = sessionsKey(ownerId);
      const isListed = await redis.command(["ZREM", list, sessionId]) === 1;
      try {
        await keys.delete({ ownerId, keyId, version: null, actor: ENDED });
      } catch (error) {
        // The session had no key, or it is gone already.
        if (!(error instanceof KeyRefused)) throw error;
      }
      return isListed;
    },

    /** Ends all sessions of the owner but one. */
    async endOthers(ownerId: string, sessionId: string | null): Promise<void> {
      for (const id of await idsOf(ownerId)) {
        if (id !== sessionId) await store.end(ownerId, id);
      }
    },
  };
  return store;
}
