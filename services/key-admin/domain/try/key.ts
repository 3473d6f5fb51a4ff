/**
 * The key of the page "Try it": one per session and account, for minutes, with limits
 * of its own.
 * Its value is derived from the session's cookie, which is stored nowhere: every
 * key-admin can derive it while the session lasts, and nobody can afterwards.
 */
import { hkdfSync } from "node:crypto";
import { mintKey } from "@gateway/shared/keys/key";
import { type KeyScope, UNLIMITED } from "@gateway/shared/keys/record";
import type { Actor } from "../audit/audit_log.ts";
import type { Session } from "../sign_in/sessions.ts";
import type { Stores } from "../stores.ts";

/** Bounds of what one session may try, for a person rather than a program. */
export const TRY_LIMITS = {
  /** How long the key works. */
  keyMs: 10 * 60_000,
  /** A request gets a new key if the old one works no longer than this. */
  renewMs: 60_000,
  /**
   * In addition to the limits of the owner. There are no daily ones, since the key
   * lives for minutes.
   */
  key: {
    ...UNLIMITED,
    requestsPerMinute: 10,
    tokensPerMinute: 40_000,
    concurrency: 2,
  },
  /**
   * How long a whole answer may take: the default timeout of OpenAI's packages. Beyond
   * it, 504.
   */
  answerMs: 600_000,
  /**
   * The largest upload, and the largest answer that a page shows whole. Beyond it, 413
   * or a message.
   */
  heldBytes: 8 * 2 ** 20,
  /**
   * How many such uploads and answers key-admin holds at the same time. Beyond it, 503.
   */
  heldAtOnce: 8,
  /**
   * How many of these are of one account: as many as its key may run. Beyond it, 429.
   */
  heldPerOwner: 2,
} as const;

/** The rights that the kinds of models in `request.ts` need, and no others. */
const SCOPES: readonly KeyScope[] = ["chat", "image", "speech", "video"];

const SETTINGS = {
  description: "Try it",
  models: [],
  networks: [],
  endUsers: null,
  priority: "normal" as const,
  keepSeconds: 0,
  expiresAtMs: null,
  scopes: SCOPES,
  limits: TRY_LIMITS.key,
};

/**
 * The value of the session's key for an account, which is created if there is none that
 * lasts. Two first requests at once create two keys; the unused one expires.
 */
export async function tryKeyValue(
  { keys, sessions, now }: Pick<Stores, "keys" | "sessions" | "now">,
  { session, ownerId }: { session: Session; ownerId: string },
  { cookie, actor }: { cookie: string; actor: Actor },
): Promise<string> {
  const mintValue = (keyId: string) => {
    let nth = 0;
    return mintKey((length) => {
      const label = `try ${keyId} ${nth++}`;
      return new Uint8Array(hkdfSync("sha256", cookie, "", label, length));
    });
  };
  const keyId = session.tryKeyIds.get(ownerId) ?? "";
  const key = await keys.get(ownerId, keyId);
  const lastsMs = (key?.expiresAtMs ?? 0) - now();
  if (key?.state === "enabled" && lastsMs > TRY_LIMITS.renewMs) {
    return mintValue(key.id);
  }
  const unlisted = { lifeMs: TRY_LIMITS.keyMs, mintValue };
  const createdBy = session.ownerId;
  const creation = { ownerId, actor, createdBy, settings: SETTINGS, unlisted };
  const newKey = await keys.create(creation);
  const tryKey = { accountId: ownerId, keyId: newKey.key.id };
  await sessions.setTryKey(session, tryKey);
  return newKey.value;
}
