// The log of kept answers on a real nats-server: what it appends, finds and removes,
// and how it fails without JetStream, without room, and when the server has lost all.
import assert from "node:assert/strict";
import { connectTestLink } from "../../tests/support/servers/bus_link.ts";
import { startNatsServer } from "../../tests/support/servers/nats_server.ts";
import { until } from "../../tests/support/wait_for.ts";
import { KeptLogError, type LogFailure } from "./log.ts";
import { KEPT_STREAM, NatsKeptLog } from "./log_nats.ts";

const ONE = "1".repeat(32);
const TWO = "2".repeat(32);
const OPTIONS = {
  storage: "memory",
  bytesMax: 200_000,
  ageMsMax: 60_000,
} as const;

const bytes = (text: string) => new TextEncoder().encode(text);
const textOf = (entry: { bytes: Uint8Array } | null) =>
  entry && new TextDecoder().decode(entry.bytes);
const failsAs = (reason: LogFailure) => (error: unknown) =>
  error instanceof KeptLogError && error.reason === reason;

async function startLog({ jetStream = true } = {}) {
  await using starting = new AsyncDisposableStack();
  const server = starting.use(await startNatsServer({ jetStream }));
  const { link } = starting.use(await connectTestLink([server.server]));
  const running = starting.move();
  return {
    log: new NatsKeptLog(link),
    link,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

Deno.test("entries are found in their order, each of its request, until they are removed", async () => {
  await using t = await startLog();
  const { log } = t;
  await log.prepare(OPTIONS);
  await log.prepare({ ...OPTIONS, bytesMax: 300_000 });
  assert.equal(await log.last(ONE), null);
  assert.equal(await log.next(ONE, 1), null);
  let heard = 0;
  const stop = log.watch(ONE, () => {
    heard += 1;
  });
  await t.link.flush();
  const first = await log.append(ONE, bytes("a"), 0);
  await log.append(TWO, bytes("x"), 0);
  const second = await log.append(ONE, bytes("b"), first);
  await until(() => heard === 2);
  stop();
  const next = (from: number) => log.next(ONE, from);
  const nextOfLeader = (from: number) => log.nextOfLeader(ONE, from);
  for (const each of [next, nextOfLeader]) {
    const found = await each(1);
    assert.equal(textOf(found), "a");
    assert.equal(found?.sequence, first);
    assert.equal(textOf(await each(first + 1)), "b");
    assert.equal(await each(second + 1), null);
  }
  assert.equal(textOf(await log.last(ONE)), "b");
  await log.remove(ONE);
  assert.equal(await log.last(ONE), null);
  assert.equal(textOf(await log.last(TWO)), "x");
});

Deno.test("an append that follows another entry than the last one changes nothing", async () => {
  await using t = await startLog();
  const { log } = t;
  await log.prepare(OPTIONS);
  const first = await log.append(ONE, bytes("a"), 0);
  for (const last of [0, first + 1]) {
    await assert.rejects(log.append(ONE, bytes("b"), last), failsAs("taken"));
  }
  assert.equal(textOf(await log.last(ONE)), "a");
});

Deno.test("a full log refuses the newest, and keeps what it has", async () => {
  await using t = await startLog();
  const { log } = t;
  await log.prepare(OPTIONS);
  const large = bytes("x".repeat(90_000));
  await log.append(ONE, large, 0);
  const last = await log.append(TWO, large, 0);
  await assert.rejects(log.append(TWO, large, last), failsAs("full"));
  assert.equal((await log.last(ONE))?.bytes.length, large.length);
});

Deno.test("without JetStream, or without the stream, nothing can be kept", async () => {
  await using bare = await startLog({ jetStream: false });
  await assert.rejects(bare.log.prepare(OPTIONS), failsAs("unavailable"));
  await assert.rejects(
    bare.log.append(ONE, bytes("a"), 0),
    failsAs("unavailable"),
  );
  await using t = await startLog();
  await t.log.prepare(OPTIONS);
  // As a server that keeps it in memory and was started anew.
  const subject = `$JS.API.STREAM.DELETE.${KEPT_STREAM}`;
  await t.link.request(subject, bytes(""), { timeoutMs: 2_000 });
  await assert.rejects(
    t.log.append(ONE, bytes("a"), 0),
    failsAs("unavailable"),
  );
  await t.log.prepare(OPTIONS);
  await t.log.append(ONE, bytes("a"), 0);
});
