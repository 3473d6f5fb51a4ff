/** A link to a real nats-server: delivery, outages, drain. */
import assert from "node:assert/strict";
import {
  connectTestLink,
  isReady,
} from "../../tests/support/servers/bus_link.ts";
import { startNatsServer } from "../../tests/support/servers/nats_server.ts";
import { sleep, startStopwatch, until } from "../../tests/support/wait_for.ts";
import { BusUnavailableError, isNoResponders } from "./link.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const text = (data: Uint8Array) => new TextDecoder().decode(data);
const NOTHING = new Uint8Array();

Deno.test("publish() delivers in order, to wildcards, to one of a queue group, and reports if there is nobody", async () => {
  await using nats = await startNatsServer();
  await using alice = await connectTestLink([nats.server]);
  await using bob = await connectTestLink([nats.server]);
  const messages: unknown[] = [];
  const jobs: string[] = [];
  const queue = "workers";
  for (const { link } of [alice, bob]) {
    link.subscribe("jobs", ({ data }) => jobs.push(text(data)), { queue });
  }
  alice.link.subscribe("s.*", (message) => {
    const { subject, data, reply } = message;
    const isRefusal = isNoResponders(message);
    messages.push({ subject, data: text(data), reply, isRefusal });
  });
  await bob.link.flush();
  await alice.link.flush();

  alice.link.publish("s.a", bytes("1"));
  alice.link.publish("s.b", NOTHING, { reply: "r" });
  alice.link.publish("nobody", bytes("job"), { reply: "s.c" });
  for (let job = 0; job < 20; job++) {
    alice.link.publish("jobs", bytes(`${job}`));
  }
  await until(() => messages.length >= 3 && jobs.length >= 20);
  assert.deepEqual(messages, [
    { subject: "s.a", data: "1", reply: "", isRefusal: false },
    { subject: "s.b", data: "", reply: "r", isRefusal: false },
    { subject: "s.c", data: "", reply: "", isRefusal: true },
  ]);
  assert.equal(new Set(jobs).size, 20);
});

Deno.test("neither a handler that throws nor a payload over max_payload harms another message", async () => {
  await using nats = await startNatsServer({ config: "max_payload: 1024" });
  await using test = await connectTestLink([nats.server]);
  const { link } = test;
  const numbers: number[] = [];
  link.subscribe("bad", () => {
    throw new Error("a bug");
  });
  link.subscribe("good", (message) => numbers.push(message.data.length));

  const tooLarge = new Uint8Array(1025);
  assert.throws(() => link.publish("good", tooLarge), /max_payload/);
  const request = link.request("good", tooLarge, { timeoutMs: 60_000 });
  await assert.rejects(request, /max_payload/);
  link.publish("bad", NOTHING);
  link.publish("good", new Uint8Array(1024));
  await until(() => numbers.length > 0);
  assert.deepEqual(numbers, [1024]);
  await isReady(link);
  const line = test.log.find("bus_handler_failed");
  assert.equal(line?.["subject"], "bad");
  assert.match(String(line?.["error"]), /a bug/);
});

Deno.test("request() resolves with the reply to its own message, and fails at once without a subscriber", async () => {
  await using nats = await startNatsServer();
  await using asker = await connectTestLink([nats.server]);
  await using answerer = await connectTestLink([nats.server]);
  const exchanges: [question: string, reply: string][] = [];
  answerer.link.subscribe("echo", ({ data, reply = "" }) => {
    // The last question is answered first.
    if (exchanges.unshift([text(data), reply]) < 20) return;
    for (const [data, to] of exchanges) answerer.link.publish(to, bytes(data));
  });
  await answerer.link.flush();
  const timeoutMs = 60_000;
  const questions = Array.from({ length: 20 }, (_, number) => `${number}`);
  const answers = await Promise.all(
    questions.map((question) =>
      asker.link.request("echo", bytes(question), { timeoutMs })
    ),
  );
  assert.deepEqual(answers.map(({ data }) => text(data)), questions);

  using watch = startStopwatch();
  await assert.rejects(
    asker.link.request("nobody", NOTHING, { timeoutMs }),
    { name: "NoRespondersError", message: /"nobody"/ },
  );
  assert.ok(watch.ms < 500, `took ${watch.ms} ms`);
});

Deno.test("a stalled event loop does not count as an outage of the bus", async () => {
  await using nats = await startNatsServer();
  await using test = await connectTestLink([nats.server], {
    timing: { silentMs: 400 },
  });
  const sinceMs = test.link.flowingSinceMs;
  const blockedUntil = performance.now() + 600;
  while (performance.now() < blockedUntil);
  await sleep(150);
  assert.equal(test.link.flowingSinceMs, sinceMs);
});

Deno.test("drain() delivers what was published just before, then closes", async () => {
  await using nats = await startNatsServer();
  await using reader = await connectTestLink([nats.server]);
  await using writer = await connectTestLink([nats.server]);
  let count = 0;
  reader.link.subscribe("s", () => count++);
  await reader.link.flush();
  for (let i = 0; i < 5_000; i++) {
    writer.link.publish("s", bytes("x".repeat(200)));
  }
  await writer.link.drain();
  await until(() => count === 5_000);
});

Deno.test("request() ends at its deadline, and when the link is closed", async () => {
  await using nats = await startNatsServer();
  await using test = await connectTestLink([nats.server]);
  const { link } = test;
  link.subscribe("silent", () => {});
  const ask = (timeoutMs: number) =>
    assert.rejects(
      link.request("silent", NOTHING, { timeoutMs }),
      BusUnavailableError,
    );
  await ask(20);
  const outcome = ask(60_000);
  await link.close();
  await link.close();
  await outcome;
  assert.equal(link.isConnected, false);
  await ask(10);
});

/** Finds a dead connection sooner, and gives up a flush before that. */
const QUICK = { silentMs: 900, dialMs: 500, flushMs: 200 };
const BACK_WITHIN_MS = 2_000;

Deno.test("a killed server: everything fails at once, and works again when it is back", async () => {
  await using nats = await startNatsServer();
  await using test = await connectTestLink([nats.server]);
  const { link } = test;
  const states: string[] = [];
  link.subscribe("s", (message) => states.push(text(message.data)));
  link.subscribe("silent", () => {});
  await link.flush();
  const reply = link.request("silent", NOTHING, { timeoutMs: 60_000 });
  const cut = assert.rejects(reply, BusUnavailableError);

  await nats.kill();
  await cut;
  assert.equal(link.isConnected, false);
  assert.throws(() => link.publish("s", NOTHING), BusUnavailableError);
  const request = link.request("s", NOTHING, { timeoutMs: 60_000 });
  await assert.rejects(request, BusUnavailableError);
  await assert.rejects(link.flush(), BusUnavailableError);
  assert.equal(link.isReady, false);
  link.subscribe("later", (message) => states.push(text(message.data)));

  await nats.restart();
  using watch = startStopwatch();
  const { outageMs } = await test.reconnected();
  assert.ok(watch.ms < BACK_WITHIN_MS, `took ${watch.ms} ms`);
  assert.ok(outageMs > 0);
  await isReady(link);
  link.publish("s", bytes("again"));
  link.publish("later", bytes("new"));
  await until(() => states.length === 2);
  assert.deepEqual(states, ["again", "new"]);
  assert.deepEqual(test.events, ["disconnected", "reconnected"]);
});

Deno.test("a frozen server is noticed, calls fail, and the link reconnects when it thaws", async () => {
  await using nats = await startNatsServer();
  await using test = await connectTestLink([nats.server], { timing: QUICK });
  const { link } = test;
  link.subscribe("silent", () => {});
  await link.flush();
  await nats.freeze();
  const reply = link.request("silent", NOTHING, { timeoutMs: 60_000 });
  await Promise.all([
    assert.rejects(reply, BusUnavailableError),
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
  const states: string[] = [];
  link.subscribe("s", (message) => states.push(text(message.data)));
  await link.flush();

  await first.freeze();
  // More than the kernel buffers of a connection to a frozen server hold.
  const piece = new Uint8Array(512 * 1024);
  for (let count = 0; count < 48; count++) link.publish("bulk", piece);
  assert.ok(link.pendingBytes > 8 * 1024 * 1024);
  assert.equal(link.isReady, false, "not ready with such a backlog");
  assert.equal((await test.reconnected()).server, second.server);
  link.publish("s", bytes("here"));
  await until(() => states.length === 1);
  assert.equal(link.pendingBytes, 0);
});

Deno.test("a retiring server is announced, and left for another one", async () => {
  await using first = await startNatsServer({
    config: `lame_duck_duration: "30s", lame_duck_grace_period: "100ms"`,
  });
  await using second = await startNatsServer();
  await using test = await connectTestLink([first.server, second.server]);
  first.retire();
  await until(() => test.events.length > 0);
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
