import assert from "node:assert/strict";
import { stopKey } from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import { createStopSender } from "./notice.ts";
import { startRedisWorld } from "../../../../tests/support/admission_fixture.ts";
import { startStopwatch } from "../../../../tests/support/wait_for.ts";
import { freePort } from "../../redis_fixture.ts";

const KEY = { keyId: "key_a", ownerId: "own_a" };

// `tests/e2e/console_takes_effect_timed_test.ts` shows that the notice arrives.
Deno.test("a sender fails within two seconds if the notice was not sent, and leaves the order for edges that come back", async () => {
  await using world = await startRedisWorld();
  const access = { servers: [`nats://127.0.0.1:${freePort()}`] };
  const log = silentLog;
  const send = createStopSender({ access, writer: world.link, log });
  using watch = startStopwatch();
  await assert.rejects(send(KEY));
  assert.ok(watch.ms < 2_000);
  const leftMs = Number(await world.command("PTTL", stopKey(KEY)));
  assert.ok(leftMs > 86_000_000, `${leftMs}`);
});
