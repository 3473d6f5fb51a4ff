import assert from "node:assert/strict";
import { connectBus } from "@gateway/shared/bus/link_nats";
import { keyChangedSubject } from "@gateway/shared/bus/subjects";
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import { startNatsServer } from "../../../../tests/support/nats_server.ts";
import { createStopSender } from "./notice.ts";
import { freePort, until } from "../../redis_fixture.ts";

const NOTICE = {
  keyId: "key_AAAAAAAAAAAAAAAAAAAA",
  ownerId: "own_AAAAAAAAAAAAAAAAAAAA",
};

async function listen(url: string) {
  const bus = await connectBus({
    servers: [url],
    name: "test",
    log: silentLog,
    now: monotonicNow,
    random: Math.random,
  });
  const heard: string[] = [];
  bus.subscribe(keyChangedSubject, ({ data }) => {
    heard.push(new TextDecoder().decode(data));
  });
  await bus.flush();
  return { heard, close: () => bus.close() };
}

Deno.test("a stop notice reaches every edge, also with a user and a password", async () => {
  const args = ["--user", "key-admin", "--pass", "s3cret"];
  await using nats = await startNatsServer({ args });
  const url = `nats://key-admin:s3cret@${nats.server}`;
  const edges = [await listen(url), await listen(url)];
  await createStopSender({ servers: [url] }, silentLog)(NOTICE);
  await until(() => edges.every(({ heard }) => heard.length === 1), 5_000);
  for (const { heard, close } of edges) {
    assert.deepEqual(JSON.parse(heard[0] ?? ""), { ...NOTICE, action: "stop" });
    await close();
  }
});

Deno.test("a sender learns within two seconds that nobody was told", async () => {
  const send = createStopSender(
    { servers: [`nats://127.0.0.1:${freePort()}`] },
    silentLog,
  );
  const startMs = performance.now();
  await assert.rejects(send(NOTICE));
  assert.ok(performance.now() - startMs < 2_000);
});
