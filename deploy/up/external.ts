import type { RedisAddress } from "@gateway/shared/redis/link";
import { hideUserinfo } from "@gateway/shared/process/userinfo";
import { probeNats } from "./nats_probe.ts";
import { redisCall } from "./redis_call.ts";
import { EXIT, messageOf, UpError } from "./up_error.ts";

const TIMEOUT_MS = 3_000;

/**
 * Checks that the server which `REDIS_URL` names answers, and returns its address.
 *
 * Throws an {@link UpError} that names the variable and the address, never a password.
 */
export async function requireRedis(
  address: RedisAddress,
): Promise<RedisAddress> {
  try {
    await redisCall(address, [["PING"]], TIMEOUT_MS);
    return address;
  } catch (error) {
    throw describe("REDIS_URL", "Redis", address.url, error);
  }
}

/** The same for `NATS_URL`, which may list several servers: one must answer. */
export async function requireNats(url: string): Promise<string> {
  try {
    const one = (text: string) => probeNats(text.trim(), TIMEOUT_MS);
    await Promise.any(url.split(",").map(one));
    return url;
  } catch (error) {
    const cause = error instanceof AggregateError ? error.errors[0] : error;
    throw describe("NATS_URL", "NATS", url, cause);
  }
}

function describe(
  variable: string,
  server: string,
  url: string,
  error: unknown,
): UpError {
  return new UpError(
    `Cannot use ${server} at "${hideUserinfo(url)}" (${variable}): ` +
      `${messageOf(error)}\n` +
      `Without ${variable} the gateway starts a server of its own`,
    EXIT.config,
  );
}
