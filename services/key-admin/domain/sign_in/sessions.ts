/** Sessions: who is signed in, by the console's cookies. */
import type { WallNow } from "@gateway/shared/process/clock";
import type { RandomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import { KeyRefused } from "../keys/key_refused.ts";
import type { KeyStore } from "../keys/key_store.ts";
import {
  asTexts,
  type Fields,
  readHash,
  type StoreDeps,
} from "../store/redis.ts";
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
/** How many sessions of an owner are shown, the newest ones. */
const SESSIONS_SHOWN_MAX = 100;

const storedSession = z.object({
  ownerId: z.string(),
  createdAtMs: z.coerce.number(),
  seenAtMs: z.coerce.number(),
  /** When the password was last entered, here or at the provider; 0 if unknown. */
  checkedAtMs: z.coerce.number(),
  ip: z.string(),
  userAgent: z.string(),
  /** The secret of a second factor that is being set up; empty if none is. */
  totpSecret: z.string().default(""),
});
type StoredSession = z.infer<typeof storedSession>;

/** A session that has not ended. */
export interface Session extends StoredSession {
  /** Digest of the cookie. It identifies a session but does not authenticate. */
  id: string;
  /** The keys of the page "Try it" by their accounts, see `try/key.ts`. */
  tryKeyIds: ReadonlyMap<string, string>;
}

/** The key of "Try it" of the owner's own account; of a project, behind a colon. */
const TRY_FIELD = "tryKeyId";

/** The keys of "Try it" in the fields of a session, by their accounts. */
const tryKeysOf = (ownerId: string, fields: Fields) =>
  new Map(
    Object.entries(fields).flatMap(([field, keyId]): [string, string][] => {
      const [name, accountId = ownerId] = field.split(":");
      return name === TRY_FIELD && keyId !== "" ? [[accountId, keyId]] : [];
    }),
  );

/** The browser of a session, as its owner sees it in the list of sessions. */
export type Client = Pick<Session, "ip" | "userAgent">;

/** The actor of what ends with a session, as the audit log names it. */
const ENDED = { by: "end of the session", ip: "" };

const sessionKey = (id: string) => `sess:${id}`;
const sessionsKey = (ownerId: string) => `sessions:{${ownerId}}`;
const LIFE_SECONDS = String(SESSION_LIMITS.absoluteMs / 1_000);

/** Dependencies of a {@link SessionStore}. */
export interface SessionStoreDeps extends Omit<StoreDeps, "writer"> {
  /** Deletes the key of the page "Try it" with its session. */
  keys: Pick<KeyStore, "delete">;
}

/**
 * Who is signed in. Sessions need not survive a loss of power, and a cookie's value is
 * never stored.
 */
export class SessionStore {
  readonly #redis: RedisLink;
  readonly #randomBytes: RandomBytes;
  readonly #now: WallNow;
  readonly #keys: Pick<KeyStore, "delete">;

  constructor({ redis, randomBytes, now, keys }: SessionStoreDeps) {
    this.#redis = redis;
    this.#randomBytes = randomBytes;
    this.#now = now;
    this.#keys = keys;
  }

  /**
   * Starts a session and returns the value of its cookie. `provedAtMs` is when its
   * owner last proved who they are, by default now.
   */
  async start(
    ownerId: string,
    { ip, userAgent }: Client,
    { provedAtMs }: { provedAtMs?: number } = {},
  ): Promise<string> {
    const cookie = mintSecret(this.#randomBytes);
    const id = digest(cookie);
    const nowMs = this.#now();
    await this.update(id, {
      ownerId,
      ip,
      createdAtMs: nowMs,
      seenAtMs: nowMs,
      checkedAtMs: provedAtMs ?? nowMs,
      userAgent: userAgent.slice(0, USER_AGENT_CHARS_MAX),
    });
    const list = sessionsKey(ownerId);
    await this.#redis.command(["ZADD", list, String(nowMs), id]);
    await this.#redis.command(["EXPIRE", list, LIFE_SECONDS]);
    return cookie;
  }

  /** The session of a cookie if it has not ended; counts as a use of it. */
  async find(cookie: string): Promise<Session | null> {
    if (!isSecret(cookie)) return null;
    const session = await this.#read(digest(cookie));
    const nowMs = this.#now();
    if (session !== null && nowMs - session.seenAtMs >= SEEN_EVERY_MS) {
      await this.update(session.id, { seenAtMs: nowMs });
    }
    return session;
  }

  /**
   * Stores these members. If the session has ended in the meantime, they form no valid
   * session, and expire.
   */
  async update(id: string, members: Partial<StoredSession>): Promise<void> {
    await this.#write(id, Object.entries(members).flat().map(String));
  }

  /** Stores the key of the page "Try it" for an account. */
  async setTryKey(
    { id, ownerId }: Session,
    { accountId, keyId }: { accountId: string; keyId: string },
  ): Promise<void> {
    const field = accountId === ownerId
      ? TRY_FIELD
      : `${TRY_FIELD}:${accountId}`;
    await this.#write(id, [field, keyId]);
  }

  /** The sessions of an owner that have not ended, most recently used first. */
  async list(ownerId: string): Promise<Session[]> {
    const ids = await this.#idsOf(ownerId, { idsMax: SESSIONS_SHOWN_MAX });
    const sessions = await Promise.all(ids.map((id) => this.#read(id)));
    return sessions.filter((session) => session !== null)
      .sort((a, b) => b.seenAtMs - a.seenAtMs);
  }

  /**
   * Ends one session of the owner, and its key of the page "Try it". False when it is
   * not the owner's.
   */
  async end(ownerId: string, sessionId: string): Promise<boolean> {
    const record = sessionKey(sessionId);
    const fields = await readHash(this.#redis, record) ?? {};
    if ((fields.ownerId ?? ownerId) !== ownerId) return false;
    // In this order, because a session that still works must stay in the list from
    // which it can be ended.
    await this.#redis.command(["DEL", record]);
    const unlist = ["ZREM", sessionsKey(ownerId), sessionId];
    const isListed = await this.#redis.command(unlist) === 1;
    for (const [accountId, keyId] of tryKeysOf(ownerId, fields)) {
      const key = { ownerId: accountId, keyId, version: null, actor: ENDED };
      await this.#keys.delete(key).catch((error) => {
        // The key is gone already.
        if (!(error instanceof KeyRefused)) throw error;
      });
    }
    return isListed;
  }

  /** Ends all sessions of the owner but one; null: all. */
  async endOthers(ownerId: string, sessionId: string | null): Promise<void> {
    for (const id of await this.#idsOf(ownerId)) {
      if (id !== sessionId) await this.end(ownerId, id);
    }
  }

  async #write(id: string, fields: string[]): Promise<void> {
    await this.#redis.command(["HSET", sessionKey(id), ...fields]);
    await this.#redis.command(["EXPIRE", sessionKey(id), LIFE_SECONDS]);
  }

  async #read(id: string): Promise<Session | null> {
    const fields = await readHash(this.#redis, sessionKey(id));
    const session = storedSession.safeParse(fields).data;
    // It has ended, or an earlier version of this service stored it in a different
    // form.
    if (session === undefined || fields === null) return null;
    const nowMs = this.#now();
    const isOver = nowMs - session.seenAtMs >= SESSION_LIMITS.idleMs ||
      nowMs - session.createdAtMs >= SESSION_LIMITS.absoluteMs;
    const tryKeyIds = tryKeysOf(session.ownerId, fields);
    return isOver ? null : { id, ...session, tryKeyIds };
  }

  /** The ids of the owner's sessions, newest first; all of them without a bound. */
  async #idsOf(
    ownerId: string,
    { idsMax = 0 }: { idsMax?: number } = {},
  ): Promise<string[]> {
    const range = [sessionsKey(ownerId), "0", String(idsMax - 1)];
    return asTexts(await this.#redis.command(["ZREVRANGE", ...range]));
  }
}
