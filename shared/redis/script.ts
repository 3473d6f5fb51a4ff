import { createHash } from "node:crypto";

/** A Lua script and the name under which Redis keeps it. */
export interface RedisScript {
  /** For logs and readiness output. */
  readonly name: string;
  readonly source: string;
  /** SHA-1 of the source, lower-case hex: what EVALSHA takes. */
  readonly sha: string;
}

/** Names a script by its content, so that edges of two versions can share a server. */
export function defineScript(name: string, source: string): RedisScript {
  const sha = createHash("sha1").update(source).digest("hex");
  return { name, source, sha };
}
