/**
 * A look at a key that costs nothing. Its script is another than the admission's:
 * that one counts a request and takes a lease, and neither a look at the models nor
 * a refused body shall cost quota.
 */
import {
  type KeyScope,
  limiterKey,
  type Principal,
  recordKey,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import type { RedisLink, RedisReply } from "@gateway/shared/redis/link";
import { INSPECT } from "./inspect.lua.ts";
import { redisFailure } from "./refusal.ts";

/** What the inspect script says of a key. */
export type Inspected =
  | { status: "ok"; models: readonly string[] }
  | { status: "unknown" | "expired" | "disabled" | "scope" }
  | { status: "empty" };

/**
 * Asks Redis whether the key is enabled, alive and has this right (null: any).
 * Throws `ApiError` `service_unavailable` when Redis does not answer.
 */
export async function inspectKey(
  redis: RedisLink,
  principal: Principal,
  scope: KeyScope | null,
): Promise<Inspected> {
  let reply: RedisReply;
  try {
    reply = await redis.evalScript(
      INSPECT,
      [limiterKey(principal)],
      [recordKey(principal), scope ?? ""],
      { deadlineMs: KEY_LIMITS.checkMs },
    );
  } catch (cause) {
    throw redisFailure(cause);
  }
  const [status, models] = Array.isArray(reply) ? reply.map(String) : [];
  switch (status) {
    case "ok":
      return {
        status,
        models: models === undefined || models === "" ? [] : models.split(","),
      };
    case "empty":
    case "unknown":
    case "expired":
    case "disabled":
    case "scope":
      return { status };
    default:
      throw new Error(`Unknown reply of the inspect script: ${status}`);
  }
}
