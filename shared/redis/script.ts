import { createHash } from "node:crypto";

/** A Lua script and the hash under which Redis caches it. */
export interface RedisScript {
  readonly name: string;
  readonly source: string;
  /** SHA-1 of the source in lower-case hex, for EVALSHA. */
  readonly sha: string;
}

/** Identifies a script by its content, so that edges of two versions can share a server. */
export function defineScript(name: string, source: string): RedisScript {
  const sha = createHash("sha1").update(source).digest("hex");
  return { name, source, sha };
}
