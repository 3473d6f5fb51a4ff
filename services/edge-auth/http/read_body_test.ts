/** How bodies are read: whole, in pieces, too slowly, and beyond every bound. */
import assert from "node:assert/strict";
import { BODY_PIECES, REFUSED_BODIES } from "@gateway/shared/limits";
import { until } from "../../../tests/support/wait_for.ts";
import { openExchange, testBudget } from "./body_fixture.ts";
import { parseWorkMs, readBody, RefusedBodies } from "./read_body.ts";

const BYTES_MAX = 200_000;
const PROGRESS_MS = 15_000;
const TOTAL_MS = 60_000;

/** Bodies that a test writes, on a clock that it sets. */
function setup(bounds = { bodiesBytesMax: 1e9, bodyBytesMax: BYTES_MAX }) {
  const { pass, assertIdle, ...budget } = testBudget(bounds);
  const charged: number[] = [];
  return {
    budget: budget.bodyBudget,
    charged,
    assertIdle,
    read(headers: Record<string, string> = {}, keyId = "key_a") {
      const { body, exchange } = openExchange(headers);
      const reading = readBody(exchange, keyId, {
        ...budget,
        bodyBytesMax: BYTES_MAX,
        refusedBodies: {
          charge: (_keyId, tookMs) => void charged.push(tookMs),
          wait: () => Promise.resolve(),
        },
      });
      /** Settled with what became of the body; nothing of it is held then. */
      const text = reading.then((read) => {
        read?.share.release();
        return read === null ? null : new TextDecoder().decode(read.bytes);
      });
      return { body, text };
    },
    /** Waits until this many bytes have arrived and are held, and a moment passes. */
    async holds(bytes: number) {
      await until(() => budget.bodyBudget.bytes === bytes);
      pass(1);
    },
    async wait(ms: number) {
      await new Promise((resolve) => setTimeout(resolve));
      pass(ms);
    },
  };
}

Deno.test("readBody() reads whole bodies, however they are cut", async () => {
  const t = setup();
  const large = "x".repeat(BYTES_MAX);
  const rows: [pieces: string[], length?: string][] = [
    [["{}"], "2"],
    [["{}"]],
    [["{", "}"], "2"],
    [[...large.slice(0, 4_000)]],
    [[]],
    [[], "0"],
    [[large], `${BYTES_MAX}`],
    [[large.slice(1), "y"]],
  ];
  for (const [pieces, length] of rows) {
    const headers = length === undefined ? {} : { "content-length": length };
    const { body, text } = t.read(headers);
    for (const piece of pieces) body.write(piece);
    body.end();
    assert.equal(await text, pieces.join(""));
    t.assertIdle();
  }
});

Deno.test("readBody() refuses by type and encoding with 415", async () => {
  const [type, encoding] = ["content-type", "content-encoding"];
  const rows: { name: string; value: string; isAccepted: boolean }[] = [
    { name: type, value: "application/json", isAccepted: true },
    { name: type, value: "Application/JSON; charset=utf-8", isAccepted: true },
    { name: type, value: "application/vnd.api+json", isAccepted: true },
    { name: type, value: "", isAccepted: true },
    { name: type, value: "text/plain", isAccepted: false },
    { name: type, value: "text/plain; x=application/json", isAccepted: false },
    { name: type, value: "multipart/form-data; boundary=x", isAccepted: false },
    { name: type, value: "application/jsonp", isAccepted: false },
    { name: type, value: "+json", isAccepted: false },
    { name: type, value: "json", isAccepted: false },
    { name: encoding, value: "Identity", isAccepted: true },
    { name: encoding, value: "", isAccepted: true },
    { name: encoding, value: "gzip", isAccepted: false },
    { name: encoding, value: "identity, gzip", isAccepted: false },
  ];
  for (const { name, value, isAccepted } of rows) {
    const { body, text } = setup().read({ [name]: value });
    body.end("{}");
    if (isAccepted) assert.equal(await text, "{}", value);
    else await assert.rejects(text, { status: 415 }, value);
  }
});

Deno.test("readBody() refuses a body that is too large, by its length or while it arrives", async () => {
  const t = setup();
  for (const length of [`${BYTES_MAX + 1}`, "10000000000000000000"]) {
    const { text } = t.read({ "content-length": length });
    await assert.rejects(text, { status: 413, message: /limit is 200000/ });
  }
  const { body, text } = t.read();
  body.write("x".repeat(BYTES_MAX));
  body.write("y");
  await assert.rejects(text, { status: 413, headers: { connection: "close" } });
  t.assertIdle();
});

Deno.test("readBody() refuses a body in too many pieces, more of them where it is larger", async () => {
  const { free, bytesMin } = BODY_PIECES;
  const t = setup();
  const rows: { pieces: number; bytes: number; isAccepted: boolean }[] = [
    { pieces: free, bytes: 1, isAccepted: true },
    { pieces: free + 100, bytes: 1, isAccepted: false },
    { pieces: free + 100, bytes: 40, isAccepted: true },
  ];
  for (const { pieces, bytes, isAccepted } of rows) {
    assert.ok(isAccepted || pieces > free + pieces * bytes / bytesMin);
    const { body, text } = t.read();
    for (let piece = 0; piece < pieces; piece += 1) {
      body.write("x".repeat(bytes));
    }
    body.end();
    if (isAccepted) assert.equal((await text)?.length, pieces * bytes);
    else await assert.rejects(text, { status: 400, message: /many pieces/ });
    t.assertIdle();
  }
  assert.equal(t.charged.length, 1);
});

Deno.test("readBody() times out on a body that stalls or trickles, and waits for one that makes progress", async () => {
  const t = setup();
  const stopped = t.read();
  stopped.body.write("x");
  await t.wait(PROGRESS_MS - 1);
  stopped.body.write("x");
  await t.wait(PROGRESS_MS - 1);
  const refused = assert.rejects(stopped.text, { status: 408 });
  await t.wait(1);
  await refused;
  const trickling = t.read();
  const over = assert.rejects(trickling.text, { status: 408 });
  for (let passed = 0; passed < TOTAL_MS; passed += PROGRESS_MS / 2) {
    trickling.body.write("x");
    await t.wait(PROGRESS_MS / 2);
  }
  await over;
  t.assertIdle();
});

Deno.test("readBody() returns null when the client has left", async () => {
  for (const start of ["", "x"]) {
    const t = setup();
    const { body, text } = t.read({ "content-length": "2" });
    body.write(start);
    await t.wait(1);
    body.destroy();
    assert.equal(await text, null);
    t.assertIdle();
  }
});

Deno.test("only bodies of the key that exceeds its share are refused", async () => {
  const t = setup({ bodiesBytesMax: 100, bodyBytesMax: 60 });
  const [first, second, other] = [t.read(), t.read(), t.read({}, "key_b")];
  for (const { body } of [first, second]) body.write("x".repeat(30));
  other.body.write("x".repeat(40));
  await t.holds(100);
  second.body.write("x");
  await assert.rejects(second.text, { status: 429, retryAfterMs: 1_000 });
  assert.equal(t.budget.bytes, 70);
  for (const { body, text } of [first, other]) {
    body.end();
    await text;
  }
  t.assertIdle();
});

Deno.test("if the budget is used up, the oldest body is refused", async () => {
  const t = setup({ bodiesBytesMax: 100, bodyBytesMax: 60 });
  const [slow, next, newest] = ["a", "b", "c"].map((key) => t.read({}, key));
  assert.ok(slow && next && newest);
  slow.body.write("x".repeat(40));
  await t.holds(40);
  next.body.write("x".repeat(50));
  await t.holds(90);
  newest.body.write("x".repeat(20));
  await assert.rejects(slow.text, { status: 503, retryAfterMs: 1_000 });
  await t.holds(70);
  // The oldest that is left may not take the others' room.
  next.body.write("x".repeat(10));
  await t.holds(80);
  newest.body.write("x".repeat(21));
  await assert.rejects(next.text, { status: 503 });
  newest.body.end();
  assert.equal((await newest.text)?.length, 41);
  t.assertIdle();
});

Deno.test("a key spends 50 ms on refused bodies at once, then 25 ms a second, and others are not affected", async () => {
  let nowMs = 1_000_000;
  const refused = new RefusedBodies(() => nowMs);
  const waits = (keyId: string, retryAfterMs: number) =>
    assert.throws(() => refused.require(keyId), {
      status: 429,
      retryAfterMs,
      reason: "request_bodies",
    });
  refused.charge("a", 20);
  refused.charge("a", 30);
  refused.require("a");
  refused.charge("a", 40);
  waits("a", 1_600);
  refused.require("b");
  nowMs += 1_599;
  waits("a", 1);
  nowMs += 1;
  refused.require("a");
  nowMs += 60_000;
  refused.charge("a", 50);
  refused.require("a");
  refused.charge("a", 1);
  waits("a", 40);
  // A client that retries at once is slowed down before it is refused or served.
  const pausesMs: number[] = [];
  const deadlines = {
    add: ({ expiresAtMs, expire }: { expiresAtMs: number; expire(): void }) => {
      pausesMs.push(expiresAtMs - nowMs);
      nowMs = expiresAtMs;
      expire();
    },
  };
  await refused.wait("a", deadlines);
  await refused.wait("a", deadlines);
  refused.charge("a", 50);
  await assert.rejects(async () => await refused.wait("a", deadlines), {
    status: 429,
  });
  assert.deepEqual(pausesMs, [40, REFUSED_BODIES.waitMs]);
});

Deno.test("parseWorkMs() is the time that parsing took, and no more than its bytes can cost", () => {
  assert.equal(parseWorkMs(0.05, 100), 0.05);
  // The machine was busy with something else.
  assert.equal(parseWorkMs(30, 0), 0.4);
  assert.equal(parseWorkMs(30, 1_000), 0.5);
  assert.equal(parseWorkMs(30, 1_000_000), 30);
});
