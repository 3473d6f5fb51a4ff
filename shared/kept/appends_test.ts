// Appends on a real bus, where the test is the log: what it gets, and what it answers,
// late, wrongly or not at all.
import assert from "node:assert/strict";
import { connectTestLink } from "../../tests/support/servers/bus_link.ts";
import { startNatsServer } from "../../tests/support/servers/nats_server.ts";
import { until } from "../../tests/support/wait_for.ts";
import type { BusMessage } from "../bus/link.ts";
import { subjects } from "../bus/subjects.ts";
import { Appends } from "./appends.ts";
import { KEPT_LIMITS } from "./limits.ts";
import { KeptLogError, type LogFailure } from "./log.ts";

const ONE = "1".repeat(32);
const TWO = "2".repeat(32);

const bytes = (text: string) => new TextEncoder().encode(text);
const textOf = (data: Uint8Array) => new TextDecoder().decode(data);
const failsAs = (reason: LogFailure) => (error: unknown) =>
  error instanceof KeptLogError && error.reason === reason;

/** A clock that the test advances. */
class Clock {
  nowMs = 0;
  readonly timers = new Set<{ run: () => void; atMs: number }>();

  readonly schedule = (run: () => void, waitMs: number): () => void => {
    const timer = { run, atMs: this.nowMs + waitMs };
    this.timers.add(timer);
    return () => this.timers.delete(timer);
  };

  advance(ms: number): void {
    this.nowMs += ms;
    for (const timer of this.timers) {
      if (timer.atMs > this.nowMs) continue;
      this.timers.delete(timer);
      timer.run();
    }
  }
}

async function start() {
  await using starting = new AsyncDisposableStack();
  const server = starting.use(await startNatsServer());
  const worker = starting.use(await connectTestLink([server.server]));
  const keeper = starting.use(await connectTestLink([server.server]));
  const { link: log } = keeper;
  const clock = new Clock();
  const { schedule } = clock;
  const now = () => clock.nowMs;
  const appends = new Appends({ link: worker.link, schedule, now });
  const got: (BusMessage & { text: string })[] = [];
  const isLog = log.subscribe(subjects.allKept, (message) => {
    const { subject, data, reply = "" } = message;
    got.push({ subject, data, reply, text: textOf(data) });
  });
  await log.flush();
  const running = starting.move();
  return {
    server,
    worker,
    keeper,
    appends,
    clock,
    got,
    /** From now on nobody receives appends. */
    leave: () => isLog.drain(),
    /** Answers the append with this payload. */
    async answer(payload: string, ack: string) {
      const { reply = "" } = await until(() =>
        got.find(({ text }) => text === payload)
      );
      log.publish(reply, bytes(ack));
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

Deno.test("each append gets its own acknowledgement, in whatever order they come", async () => {
  await using t = await start();
  const all = ["a", "b", "c"].map((text, index) =>
    t.appends.append(index === 1 ? TWO : ONE, bytes(text), index)
  );
  for (const [text, seq] of [["c", 9], ["a", 7], ["b", 8]] as const) {
    await t.answer(text, `{"stream":"gateway_kept","seq":${seq}}`);
  }
  assert.deepEqual(await Promise.all(all), [7, 8, 9]);
  assert.deepEqual(
    t.got.map(({ subject }) => subject),
    [ONE, TWO, ONE].map(subjects.kept),
  );
  assert.equal(t.clock.timers.size, 0, "a timer runs for nobody");
});

const ANSWERS: { ack: string; reason: LogFailure }[] = [
  { ack: errorOf(10_071), reason: "taken" },
  { ack: errorOf(10_077), reason: "full" },
  { ack: errorOf(10_047), reason: "full" },
  { ack: errorOf(10_023), reason: "full" },
  { ack: errorOf(10_039), reason: "unavailable" },
  { ack: '{"error":{"code":500},"stream":"x","seq":0}', reason: "unavailable" },
  { ack: '{"stream":"gateway_kept"}', reason: "unavailable" },
  { ack: '{"stream":"gateway_kept","seq":0}', reason: "unavailable" },
  { ack: '{"stream":"gateway_kept","seq":"7"}', reason: "unavailable" },
  { ack: "not JSON", reason: "unavailable" },
  { ack: "", reason: "unavailable" },
];

function errorOf(err_code: number): string {
  const error = { code: 503, err_code, description: "a reason" };
  return JSON.stringify({ error, stream: "gateway_kept", seq: 0 });
}

Deno.test("an append fails as the log says, or as unavailable if that cannot be read", async () => {
  await using t = await start();
  for (const [index, { ack, reason }] of ANSWERS.entries()) {
    const appended = t.appends.append(ONE, bytes(`${index}`), 0);
    const failed = assert.rejects(appended, failsAs(reason), ack);
    await t.answer(`${index}`, ack);
    await failed;
  }
});

Deno.test("an append that nobody receives fails at once", async () => {
  await using t = await start();
  await t.leave();
  const appended = t.appends.append(ONE, bytes("a"), 0);
  await assert.rejects(appended, failsAs("unavailable"));
  assert.equal(t.clock.nowMs, 0);
});

Deno.test("an append without an answer fails after its time, and a late one is nobody's", async () => {
  await using t = await start();
  const ack = '{"stream":"gateway_kept","seq":1}';
  const first = t.appends.append(ONE, bytes("a"), 0);
  const isLate = assert.rejects(first, failsAs("unavailable"));
  t.clock.advance(KEPT_LIMITS.callMs / 2);
  const second = t.appends.append(ONE, bytes("b"), 0);
  t.clock.advance(KEPT_LIMITS.callMs / 2);
  await isLate;
  await t.answer("a", ack);
  await t.answer("b", '{"stream":"gateway_kept","seq":2}');
  assert.equal(await second, 2);
  assert.equal(t.clock.timers.size, 0);
  // An answer that comes twice.
  await t.answer("b", ack);
  const third = t.appends.append(ONE, bytes("c"), 2);
  await t.answer("c", '{"stream":"gateway_kept","seq":3}');
  assert.equal(await third, 3);
});

Deno.test("without a connection appends fail at once, and succeed when there is one again", async () => {
  await using t = await start();
  const appended = t.appends.append(ONE, bytes("a"), 0);
  const isLost = assert.rejects(appended, failsAs("unavailable"));
  await until(() => t.got.length === 1);
  await t.server.restart();
  await isLost;
  assert.equal(t.clock.nowMs, 0);
  assert.equal(t.clock.timers.size, 0);
  await Promise.all([t.worker.reconnected(), t.keeper.reconnected()]);
  const again = t.appends.append(ONE, bytes("b"), 0);
  await t.answer("b", '{"stream":"gateway_kept","seq":4}');
  assert.equal(await again, 4);
});
