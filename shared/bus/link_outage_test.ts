import assert from "node:assert/strict";
import { connectTestLink, isReady } from "../../tests/support/bus_link.ts";
import { startNatsServer } from "../../tests/support/nats_server.ts";
import {
  startStopwatch,
  until,
  waitFor,
} from "../../tests/support/wait_for.ts";
import { BusUnavailableError } from "./link.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const text = (data: Uint8Array) => new TextDecoder().decode(data);
const NOTHING = new Uint8Array();

/** Finds a dead connection sooner, and gives up a flush before that. */
const QUICK = { silentMs: 900, dialMs: 500, flushMs: 200 };
const BACK_WITHIN_MS = 2_000;

Deno.test("a killed server: everything fails at once, and works again when it is back", async () => {
  await using nats = await startNatsServer();
  await using test = await connectTestLink([nats.server]);
  const { link } = test;
  const seen: string[] = [];
  link.subscribe("s", (message) => seen.push(text(message.data)));
  link.subscribe("silent", () => {});
  await link.flush();
  const asked = link.request("silent", NOTHING, { timeoutMs: 60_000 });
  const cut = assert.rejects(asked, BusUnavailableError);

  await nats.kill();
  await cut;
  assert.equal(link.isConnected, false);
  assert.throws(() => link.publish("s", NOTHING), BusUnavailableError);
  await assert.rejects(
    link.request("s", NOTHING, { timeoutMs: 60_000 }),
    BusUnavailableError,
  );
  await assert.rejects(link.flush(), BusUnavailableError);
  assert.equal(link.isReady, false);
  link.subscribe("later", (message) => seen.push(text(message.data)));

  await nats.restart();
  using watch = startStopwatch();
  const { outageMs } = await test.reconnected();
  assert.ok(watch.ms < BACK_WITHIN_MS, `took ${watch.ms} ms`);
  assert.ok(outageMs > 0);
  await isReady(link);
  link.publish("s", bytes("again"));
  link.publish("later", bytes("new"));
  await waitFor(() => seen.length === 2, { what: "two messages" });
  assert.deepEqual(seen, ["again", "new"]);
  assert.deepEqual(test.events, ["disconnected", "reconnected"]);
});

Deno.test("a frozen server is found, waits end, and the link returns when it thaws", async () => {
  await using nats = await startNatsServer();
  await using test = await connectTestLink([nats.server], { timing: QUICK });
  const { link } = test;
  link.subscribe("silent", () => {});
  await link.flush();
  await nats.freeze();
  const asked = link.request("silent", NOTHING, { timeoutMs: 60_000 });
  await Promise.all([
    assert.rejects(asked, BusUnavailableError),
    assert.rejects(link.flush(), /no answer within 200 ms/),
  ]);
  assert.equal(link.isConnected, false);
  nats.thaw();
  await test.reconnected();
  await isReady(link);
});

Deno.test("a server that reads nothing is left in spite of a backlog", async () => {
  await using first = await startNatsServer();
  await using second = await startNatsServer();
  await using test = await connectTestLink([first.server, second.server], {
    timing: QUICK,
  });
  const { link } = test;
  const seen: string[] = [];
  link.subscribe("s", (message) => seen.push(text(message.data)));
  await link.flush();

  await first.freeze();
  // More than the kernel buffers of a connection to a frozen server hold.
  const piece = new Uint8Array(512 * 1024);
  for (let sent = 0; sent < 48; sent++) link.publish("bulk", piece);
  assert.ok(link.pendingBytes > 8 * 1024 * 1024);
  assert.equal(link.isReady, false, "not ready with such a backlog");
  assert.equal((await test.reconnected()).server, second.server);
  link.publish("s", bytes("here"));
  await waitFor(() => seen.length === 1, { what: "a message" });
  assert.equal(link.pendingBytes, 0);
});

Deno.test("a server that retires is announced, and left without a lost message", async () => {
  await using first = await startNatsServer({
    config: `lame_duck_duration: "30s", lame_duck_grace_period: "100ms"`,
  });
  await using second = await startNatsServer();
  await using test = await connectTestLink([first.server, second.server]);
  first.retire();
  await waitFor(() => test.events.length > 0, { what: "the announcement" });
  assert.equal(test.events[0], "lame_duck");
  assert.equal(test.link.isConnected, true);
  assert.equal((await test.reconnected()).server, second.server);
});

Deno.test("drain() and close() end in time during an outage", async () => {
  await using nats = await startNatsServer();
  await using drained = await connectTestLink([nats.server]);
  await using closed = await connectTestLink([nats.server]);
  drained.link.subscribe("s", () => {});
  await nats.kill();
  await until(() => !drained.link.isConnected && !closed.link.isConnected);
  await Promise.all([drained.link.drain(), closed.link.close()]);
});
