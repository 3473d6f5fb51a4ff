import type { KeyRecord } from "@gateway/shared/keys/record";
import type { KeyRefusal, Target } from "../../domain/keys/key_store.ts";
import { type Rate, takeRate } from "../../domain/sign_in/attempts.ts";
import { digest, isSecret } from "../../domain/store/secret.ts";
import { clientOf, type ConsoleContext, type ConsoleDeps } from "../context.ts";
import { Refused } from "../refused.ts";

/** What the requests about one key have in common. */

/** A person makes a few keys in a row; a script uses the command line (API6). */
export const CREATION_RATE: Rate = { count: 10, perMs: 60_000 };

/** Refuses when the owner has made many keys within a minute. */
export async function limitCreation(
  { redis }: ConsoleDeps,
  ownerId: string,
): Promise<void> {
  const waitMs = await takeRate(redis, `create ${ownerId}`, CREATION_RATE);
  if (waitMs === 0) return;
  const seconds = String(Math.ceil(waitMs / 1_000));
  throw new Refused(
    429,
    `Many keys were made in the last minute. Try again in ${seconds} seconds`,
    { headers: { "retry-after": seconds } },
  );
}

/** The key of the path, if it is the owner's; anybody else's does not exist (API1, ASVS 8.2.2). */
export async function findKey(
  c: ConsoleContext,
  { keys }: ConsoleDeps,
): Promise<KeyRecord> {
  const { ownerId } = c.get("signedIn").session;
  const key = await keys.get(ownerId, c.req.param("id") ?? "");
  if (key === null) throw refusal("not_found");
  return key;
}

/** The key in the version that the page showed. */
export function targetOf(
  c: ConsoleContext,
  { ownerId, id }: KeyRecord,
  seenVersion: number,
): Target {
  return { ownerId, keyId: id, version: seenVersion, actor: actorOf(c) };
}

/** What stands for a form's nonce in the store. */
export function nonceDigest(nonce: string): string {
  if (!isSecret(nonce)) throw new Refused(400, "The form is not one of ours");
  return digest(nonce);
}

/** A refusal of the store in words, with the way back to the key. */
export function refusal(reason: KeyRefusal, key?: KeyRecord): Refused {
  const back = key === undefined ? "/keys" : `/keys/${key.id}`;
  switch (reason) {
    case "not_found":
      return new Refused(
        404,
        "There is no such key. If it was deleted, the audit log says when and by whom",
      );
    case "changed":
      return new Refused(
        409,
        "The key was changed meanwhile, perhaps in another tab. Look at it and try again",
        { back },
      );
    case "too_many":
      return new Refused(409, "You have as many keys as there may be");
    case "already_made":
      return new Refused(409, "This was made already");
    case "not_rotatable":
      return new Refused(
        409,
        "Only an enabled key that has not expired can be rotated",
        { back },
      );
  }
}

/** Who asks, for the audit log. */
export const actorOf = (c: ConsoleContext) => ({
  by: c.get("signedIn").account.email,
  ip: clientOf(c).ip,
});
