/**
 * Sending the order to end the running requests of a key.
 * `tests/e2e/console_effect_checks.ts` shows that it arrives.
 */
import assert from "node:assert/strict";
import { subjects } from "@gateway/shared/bus/subjects";
import { stopKey } from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import { createStopSender } from "./notice.ts";
import { startRedisWorld } from "../../../../tests/support/limits/admission_fixture.ts";
import { connectTestLink } from "../../../../tests/support/servers/bus_link.ts";
import { startNatsServer } from "../../../../tests/support/servers/nats_server.ts";
import { startStopwatch } from "../../../../tests/support/wait_for.ts";
import { freePort } from "../../redis_fixture.ts";

const KEY = { keyId: "key_a", ownerId: "own_a" };

Deno.test("a notice that is not sent fails within two seconds, and waits for edges that come back", async () => {
  await using world = await startRedisWorld();
  const access = { servers: [`nats://127.0.0.1:${freePort()}`] };
  const { link: writer } = world;
  const send = createStopSender({ access, writer, log: silentLog });
  using watch = startStopwatch();
  await assert.rejects(send([KEY]));
  assert.ok(watch.ms < 2_000);
  const leftMs = Number(await world.command("PTTL", stopKey(KEY)));
  assert.ok(leftMs > 86_000_000, `${leftMs}`);
});

Deno.test("the notice is sent even if Redis takes no order, which is reported", async () => {
  await using nats = await startNatsServer();
  await using edge = await connectTestLink([nats.server]);
  const { promise, resolve } = Promise.withResolvers<Uint8Array>();
  edge.link.subscribe(subjects.keyChanged, ({ data }) => resolve(data));
  await edge.link.flush();
  const full = new Error("OOM command not allowed");
  const writer = { command: () => Promise.reject(full) };
  const access = { servers: [nats.server] };
  const send = createStopSender({ access, writer, log: silentLog });
  await assert.rejects(send([KEY]), full);
  const notice = JSON.parse(new TextDecoder().decode(await promise));
  assert.deepEqual(notice, { ...KEY, action: "stop" });
});
