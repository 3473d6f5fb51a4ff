import assert from "node:assert/strict";
import { silentLog } from "@gateway/shared/process/log";
import { createStopSender } from "./notice.ts";
import { startStopwatch } from "../../../../tests/support/wait_for.ts";
import { freePort } from "../../redis_fixture.ts";

// `tests/e2e/console_takes_effect_timed_test.ts` shows that the notice arrives.
Deno.test("a sender fails within two seconds if the notice was not sent", async () => {
  const servers = [`nats://127.0.0.1:${freePort()}`];
  const send = createStopSender({ servers }, silentLog);
  using watch = startStopwatch();
  await assert.rejects(send({ keyId: "key_a", ownerId: "own_a" }));
  assert.ok(watch.ms < 2_000);
});
