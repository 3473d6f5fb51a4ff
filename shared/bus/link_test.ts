import assert from "node:assert/strict";
import { connectTestLink, isReady } from "../../tests/support/bus_link.ts";
import { startNatsServer } from "../../tests/support/nats_server.ts";
import { sleep, waitFor } from "../../tests/support/wait_for.ts";
import {
  BusUnavailableError,
  isNoResponders,
  NoRespondersError,
} from "./link.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const text = (data: Uint8Array) => new TextDecoder().decode(data);
const NOTHING = new Uint8Array();

Deno.test("publish() delivers to wildcard subscriptions, in order, with reply", async () => {
  await using nats = await startNatsServer();
  await using alice = await connectTestLink([nats.server]);
  await using bob = await connectTestLink([nats.server]);
  const seen: unknown[] = [];
  bob.link.subscribe(
    "s.*",
    (message) =>
      seen.push([message.subject, text(message.data), message.reply]),
  );
  await bob.link.flush();

  alice.link.publish("s.a", bytes("1"));
  alice.link.publish("s.b", bytes("2"), { reply: "r" });
  await waitFor(() => seen.length === 2, { what: "two messages" });
  assert.deepEqual(seen, [["s.a", "1", ""], ["s.b", "2", "r"]]);
});

Deno.test("a queue group gets each message once", async () => {
  await using nats = await startNatsServer();
  await using sender = await connectTestLink([nats.server]);
  await using first = await connectTestLink([nats.server]);
  await using second = await connectTestLink([nats.server]);
  const seen: string[] = [];
  for (const { link } of [first, second]) {
    link.subscribe("jobs", (message) => seen.push(text(message.data)), {
      queue: "workers",
    });
    await link.flush();
  }
  for (let job = 0; job < 20; job++) {
    sender.link.publish("jobs", bytes(`${job}`));
  }
  await waitFor(() => seen.length >= 20, { what: "the jobs" });
  assert.equal(new Set(seen).size, 20);
});

Deno.test("a handler that throws harms no other message", async () => {
  await using nats = await startNatsServer();
  await using test = await connectTestLink([nats.server]);
  const seen: string[] = [];
  test.link.subscribe("bad", () => {
    throw new Error("a bug");
  });
  test.link.subscribe("good", (message) => seen.push(text(message.data)));

  test.link.publish("bad", NOTHING);
  test.link.publish("good", bytes("after"));
  await waitFor(() => seen.length === 1, { what: "the message after the bug" });
  await test.link.flush();
  await isReady(test.link);
  const line = test.log.find("bus_handler_failed");
  assert.equal(line?.["subject"], "bad");
  assert.match(String(line?.["error"]), /a bug/);
});

Deno.test("a payload over max_payload is an error and harms nothing", async () => {
  await using nats = await startNatsServer({ config: "max_payload: 1024" });
  await using test = await connectTestLink([nats.server]);
  const seen: number[] = [];
  test.link.subscribe("s", (message) => seen.push(message.data.length));

  const tooLarge = new Uint8Array(1025);
  assert.throws(() => test.link.publish("s", tooLarge), /max_payload/);
  await assert.rejects(
    test.link.request("s", tooLarge, { timeoutMs: 5_000 }),
    /max_payload/,
  );
  test.link.publish("s", new Uint8Array(1024));
  await waitFor(() => seen.length > 0, { what: "the message that fits" });
  assert.deepEqual(seen, [1024]);
});

Deno.test("request() resolves with the answer to this very question", async () => {
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
      timeoutMs: 5_000,
    });
    return Number(text(answer.data));
  }));
  assert.deepEqual(answers, numbers.map((number) => number * 2));
});

Deno.test("request() without a subscriber fails at once, not at its timeout", async () => {
  await using nats = await startNatsServer();
  await using test = await connectTestLink([nats.server]);
  await assert.rejects(
    test.link.request("warm.up", NOTHING, { timeoutMs: 5_000 }),
    NoRespondersError,
  );
  const startedAt = performance.now();
  await assert.rejects(
    test.link.request("nobody", NOTHING, { timeoutMs: 60_000 }),
    (error) =>
      error instanceof NoRespondersError && /"nobody"/.test(error.message),
  );
  const tookMs = performance.now() - startedAt;
  assert.ok(tookMs < 500, `took ${tookMs} ms`);
});

Deno.test("isNoResponders() recognizes the server's notice on a reply subject", async () => {
  await using nats = await startNatsServer();
  await using test = await connectTestLink([nats.server]);
  const seen: [string, boolean][] = [];
  test.link.subscribe("edge.e1.s.*", (message) => {
    seen.push([message.subject, isNoResponders(message)]);
  });
  test.link.publish("jobs", bytes("job"), { reply: "edge.e1.s.r1" });
  test.link.publish("edge.e1.s.r2", NOTHING);
  await waitFor(() => seen.length === 2, { what: "two messages" });
  assert.deepEqual(seen, [["edge.e1.s.r1", true], ["edge.e1.s.r2", false]]);
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
