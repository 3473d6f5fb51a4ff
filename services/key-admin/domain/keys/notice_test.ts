import assert from "node:assert/strict";
import { silentLog } from "@gateway/shared/process/log";
import { createStopSender } from "./notice.ts";
import { freePort } from "../../redis_fixture.ts";

const NOTICE = {
  keyId: "key_AAAAAAAAAAAAAAAAAAAA",
  ownerId: "own_AAAAAAAAAAAAAAAAAAAA",
};

// That it arrives is in `tests/e2e/console_stops_running_test.ts`.
Deno.test("a sender learns within two seconds that nobody was told", async () => {
  const send = createStopSender(
    { servers: [`nats://127.0.0.1:${freePort()}`] },
    silentLog,
  );
  const startMs = performance.now();
  await assert.rejects(send(NOTICE));
  assert.ok(performance.now() - startMs < 2_000);
});
