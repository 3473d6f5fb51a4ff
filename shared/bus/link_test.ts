import assert from "node:assert/strict";
import { connectTestLink, isReady } from "../../tests/support/bus_link.ts";
import { startNatsServer } from "../../tests/support/nats_server.ts";
import {
  sleep,
  startStopwatch,
  until,
  waitFor,
} from "../../tests/support/wait_for.ts";
import {
  BusUnavailableError,
  isNoResponders,
  NoRespondersError,
} from "./link.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const text = (data: Uint8Array) => new TextDecoder().decode(data);
const NOTHING = new Uint8Array();

Deno.test("publish() delivers to wildcards and to one of a queue group, in order, with reply; the server says when nobody is there", async () => {
  await using nats = await startNatsServer();
  await using alice = await connectTestLink([nats.server]);
  await using bob = await connectTestLink([nats.server]);
  const seen: unknown[] = [];
  const jobs: string[] = [];
  for (const { link } of [alice, bob]) {
    link.subscribe("jobs", (message) => jobs.push(text(message.data)), {
      queue: "workers",
    });
  }
  alice.link.subscribe("s.*", (message) => {
    const { subject, data, reply } = message;
    seen.push([subject, text(data), reply, isNoResponders(message)]);
  });
  await bob.link.flush();
  await alice.link.flush();

  alice.link.publish("s.a", bytes("1"));
  alice.link.publish("s.b", NOTHING, { reply: "r" });
  alice.link.publish("nobody", bytes("job"), { reply: "s.c" });
  for (let job = 0; job < 20; job++) {
    alice.link.publish("jobs", bytes(`${job}`));
  }
  await until(() => seen.length >= 3 && jobs.length >= 20);
  assert.deepEqual(seen, [
    ["s.a", "1", "", false],
    ["s.b", "", "r", false],
    ["s.c", "", "", true],
  ]);
  assert.equal(new Set(jobs).size, 20);
});

Deno.test("neither a handler that throws nor a payload over max_payload harms another message", async () => {
  await using nats = await startNatsServer({ config: "max_payload: 1024" });
  await using test = await connectTestLink([nats.server]);
  const { link } = test;
  const seen: number[] = [];
  link.subscribe("bad", () => {
    throw new Error("a bug");
  });
  link.subscribe("good", (message) => seen.push(message.data.length));

  const tooLarge = new Uint8Array(1025);
  assert.throws(() => link.publish("good", tooLarge), /max_payload/);
  await assert.rejects(
    link.request("good", tooLarge, { timeoutMs: 60_000 }),
    /max_payload/,
  );
  link.publish("bad", NOTHING);
  link.publish("good", new Uint8Array(1024));
  await waitFor(() => seen.length > 0, { what: "the message after the bug" });
  assert.deepEqual(seen, [1024]);
  await isReady(link);
  const line = test.log.find("bus_handler_failed");
  assert.equal(line?.["subject"], "bad");
  assert.match(String(line?.["error"]), /a bug/);
});

Deno.test("request() resolves with the answer to this very question, and without a subscriber fails at once", async () => {
  await using nats = await startNatsServer();
  await using asker = await connectTestLink([nats.server]);
  await using answerer = await connectTestLink([nats.server]);
  answerer.link.subscribe("double", (message) => {
    const number = Number(text(message.data));
    // Later questions are answered first.
    setTimeout(
      () => answerer.link.publish(message.reply ?? "", bytes(`${number * 2}`)),
      20 - number,
    );
  });
  await answerer.link.flush();
  const numbers = Array.from({ length: 20 }, (_, number) => number);
  const answers = await Promise.all(numbers.map(async (number) => {
    const answer = await asker.link.request("double", bytes(`${number}`), {
      timeoutMs: 60_000,
    });
    return Number(text(answer.data));
  }));
  assert.deepEqual(answers, numbers.map((number) => number * 2));

  using watch = startStopwatch();
  await assert.rejects(
    asker.link.request("nobody", NOTHING, { timeoutMs: 60_000 }),
    (error) =>
      error instanceof NoRespondersError && /"nobody"/.test(error.message),
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
  await waitFor(() => count === 5_000, { what: "all messages" });
});

Deno.test("request() ends at its deadline, and every use of a closed link fails", async () => {
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
  assert.throws(() => link.publish("s", NOTHING), BusUnavailableError);
  await assert.rejects(link.flush(), BusUnavailableError);
  await ask(10);
  assert.equal(link.isReady, false);
});
