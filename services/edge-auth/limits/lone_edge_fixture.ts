/** The limiter of a single edge, for tests. */
import { type MonotonicNow, monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import type { RedisWorld } from "../../../tests/support/limits/admission_fixture.ts";
import { aclRules } from "../../../tests/support/deployed/deployed_stores.ts";
import { Limiter } from "./limiter.ts";

const USER = "edge-auth";
const PASSWORD = "correct-horse";

/**
 * A link as the user that edges have where they are deployed, which may do all that
 * they do. `tests/deploy/store_privilege_test.ts` shows that it may do nothing else.
 */
export async function edgeLink(world: RedisWorld) {
  await world.command("ACL", "SETUSER", ...await aclRules(USER, PASSWORD));
  return await world.open(
    `redis://${USER}:${PASSWORD}@127.0.0.1:${world.redis.port}`,
  );
}

/** The limiter of an edge, which ends with its test. */
export interface LoneEdge extends Limiter, AsyncDisposable {}

/** A limiter for tests with a single edge, which has that user. */
export async function loneEdge(
  world: RedisWorld,
  now: MonotonicNow = monotonicNow,
): Promise<LoneEdge> {
  const limiter = new Limiter({
    redis: await edgeLink(world),
    now,
    log: silentLog,
    // These tests must also pass on a busy machine.
    deadlineMs: 1_000,
  });
  const stop = async () => void await limiter.leases.stop(1_000);
  return Object.assign(limiter, { [Symbol.asyncDispose]: stop });
}
