import { z } from "zod";

/** A session, and the fields of its record in Redis. */

/** A signed-in browser. */
export interface Session {
  /** Digest of the cookie: names a session and opens none. */
  id: string;
  ownerId: string;
  createdAtMs: number;
  seenAtMs: number;
  /** When the password was last entered. */
  checkedAtMs: number;
  ip: string;
  userAgent: string;
  /** Belongs into every form of the session. */
  formToken: string;
}

const stored = z.object({
  owner: z.string(),
  form: z.string(),
  created: z.coerce.number(),
  seen: z.coerce.number(),
  checked: z.coerce.number(),
  ip: z.string(),
  agent: z.string(),
});

/** A record as HGETALL gives it. */
export function decodeSession(
  id: string,
  fields: ReadonlyMap<string, string>,
): Session {
  const session = stored.parse(Object.fromEntries(fields));
  return {
    id,
    ownerId: session.owner,
    createdAtMs: session.created,
    seenAtMs: session.seen,
    checkedAtMs: session.checked,
    ip: session.ip,
    userAgent: session.agent,
    formToken: session.form,
  };
}
