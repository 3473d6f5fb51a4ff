import { createHash } from "node:crypto";

/** A Lua script and the hash under which Redis caches it. */
export type RedisScript = Readonly<ReturnType<typeof defineScript>>;

/** Identifies a script by its content, so that edges of two versions can share a server. */
export function defineScript(name: string, source: string) {
  /** SHA-1 in lower-case hex, for EVALSHA. */
  const sha = createHash("sha1").update(source).digest("hex");
  return { name, source, sha };
}
