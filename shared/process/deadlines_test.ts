/** Deadlines that do not count stalls of their own process. */
import assert from "node:assert/strict";
import { sleep, until } from "../../tests/support/wait_for.ts";
import { monotonicNow } from "./clock.ts";
import { Deadlines, type Timed } from "./deadlines.ts";

/** Something that expires at a time, and then writes its name into a log. */
class Item implements Timed {
  livePlace: number | undefined = undefined;
  stalledBeforeMs: number | undefined = undefined;

  constructor(
    public expiresAtMs: number,
    readonly log: string[],
    readonly name: string,
  ) {}

  expire(): void {
    this.log.push(this.name);
  }
}

/** An item of the process's clock. */
const item = (inMs: number, log: string[], name: string) =>
  new Item(monotonicNow() + inMs, log, name);

Deno.test("deadlines expire in order of time, those removed or closed never", async () => {
  const deadlines = new Deadlines(monotonicNow);
  const closed = new Deadlines(monotonicNow);
  const log: string[] = [];
  const removed = item(10, log, "removed");
  closed.add(item(5, log, "closed"));
  closed.close();
  deadlines.add(removed);
  deadlines.add(item(60, log, "late"));
  deadlines.add(item(15, log, "early"));
  deadlines.remove(removed);
  await until(() => deadlines.size === 0);
  assert.deepEqual(log, ["early", "late"]);
  deadlines.close();
});

Deno.test("a deadline that was moved later expires then, and one may remove another", async () => {
  let nowMs = 0;
  const deadlines = new Deadlines(() => nowMs);
  const log: string[] = [];
  const at = (ms: number, name: string) => new Item(ms, log, name);
  const moved = at(10, "moved");
  const other = at(17, "removed by another");
  const first = at(15, "first");
  first.expire = () => {
    log.push("first");
    deadlines.remove(other);
  };
  for (const each of [moved, other, first]) deadlines.add(each);
  moved.expiresAtMs = 18;
  // All are due when the timer fires.
  nowMs = 20;
  await until(() => deadlines.size === 0);
  assert.deepEqual(log, ["first", "moved"]);
  deadlines.close();
});

Deno.test("after a stall of this process, waiting answers are handled before deadlines", async () => {
  const deadlines = new Deadlines(monotonicNow);
  const log: string[] = [];
  const timed = item(20, log, "expired");
  deadlines.add(timed);
  const { port1, port2 } = new MessageChannel();
  port2.onmessage = () => deadlines.remove(timed);
  port1.postMessage("answer");
  const endsAtMs = monotonicNow() + 60;
  while (monotonicNow() < endsAtMs);
  await sleep(20);
  port1.close();
  port2.close();
  assert.deepEqual(log, []);
  deadlines.close();
});

Deno.test("a stall of this process long before a deadline extends it as well", async () => {
  const deadlines = new Deadlines(monotonicNow);
  const addedAtMs = monotonicNow();
  const expired = Promise.withResolvers<number>();
  deadlines.add({
    expiresAtMs: addedAtMs + 150,
    expire: () => expired.resolve(monotonicNow()),
  });
  while (monotonicNow() < addedAtMs + 100);
  const tookMs = await expired.promise - addedAtMs;
  assert.ok(tookMs >= 220, `expired after ${tookMs} ms`);
  deadlines.close();
});

Deno.test("without grace, a stall of this process extends no deadline", async () => {
  let nowMs = 0;
  const deadlines = new Deadlines(() => nowMs, 0);
  const log: string[] = [];
  for (const ms of [20, 600]) deadlines.add(new Item(ms, log, `${ms}`));
  nowMs = 500;
  await until(() => deadlines.size === 1);
  nowMs = 600;
  await until(() => deadlines.size === 0);
  assert.deepEqual(log, ["20", "600"]);
  deadlines.close();
});

Deno.test("repeated stalls extend deadlines by a second at most", async () => {
  const deadlines = new Deadlines(monotonicNow);
  const log: string[] = [];
  const startedAtMs = monotonicNow();
  let turnsPastGrace = 0;
  deadlines.add(item(20, log, "expired"));
  while (log.length === 0) {
    if (monotonicNow() - startedAtMs > 1_020) turnsPastGrace += 1;
    // Longer than any time that is given, or a timer in between may be punctual.
    const endsAtMs = monotonicNow() + 150;
    while (monotonicNow() < endsAtMs);
    await sleep(0);
  }
  const tookMs = monotonicNow() - startedAtMs;
  assert.ok(tookMs > 1_000, `${tookMs} ms`);
  assert.ok(turnsPastGrace <= 2, `${turnsPastGrace} turns too many`);
  deadlines.close();
});
