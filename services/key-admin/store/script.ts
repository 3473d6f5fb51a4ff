import { createHash } from "node:crypto";
import type { RedisCommands } from "./redis.ts";

/** A Lua script and the name Redis knows it by. */
export interface Script {
  readonly text: string;
  readonly sha1: string;
}

/** Names a script; Redis wants SHA-1 here. */
export function defineScript(text: string): Script {
  return { text, sha1: createHash("sha1").update(text).digest("hex") };
}

/**
 * Runs a script on keys that share one slot. Sends its text only when the
 * server does not know it, which is the case after a restart or a failover.
 */
export async function runScript(
  redis: RedisCommands,
  script: Script,
  keys: readonly string[],
  args: readonly string[],
): Promise<unknown> {
  const rest = [String(keys.length), ...keys, ...args];
  try {
    return await redis.send(["EVALSHA", script.sha1, ...rest]);
  } catch (error) {
    if (!(error instanceof Error) || !error.message.startsWith("NOSCRIPT")) {
      throw error;
    }
    return await redis.send(["EVAL", script.text, ...rest]);
  }
}
