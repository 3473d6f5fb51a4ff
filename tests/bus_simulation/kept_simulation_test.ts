/**
 * The promises of kept answers in simulated runs: up to three workers run a request at
 * the same time, each with another answer, some of them killed; readers come and go;
 * calls of the log are lost on the way there or back, and its copies lag. However that
 * turns out, all readers get the bytes of one answer, each once and in order.
 * `TEST_SEED=7` plays that run alone.
 */
import assert from "node:assert/strict";
import { FrameType } from "@gateway/shared/bus/stream/frame";
import { EntryTurns } from "@gateway/shared/worker/jobs/entry_turns";
import { KeptWriter } from "@gateway/shared/worker/jobs/kept_writer";
import { KeptReading } from "../../services/edge-auth/kept/reading.ts";
import { ApiError } from "@gateway/shared/openai/error";
import { amountOf } from "../support/amount.ts";
import { print } from "../support/process.ts";
import { runningRecord } from "./kept_record.ts";
import { seededRandom, seedsOr } from "../support/seeded_random.ts";
import { KeptWorld, SimulatedLog } from "./kept_world.ts";

const RUNS = amountOf({ usual: 400, full: 100_000 });
const RUN_MS = 120_000;
const READERS = 3;
const WORKERS_MAX = 3;
/** This many others make the pauses between entries as long as they may be. */
const JOBS_MAX = 250;
const PARTS_MAX = 12;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

const RECORD = runningRecord(RUN_MS);

/** What a worker has written, and what became of it. */
interface SimulatedWorker {
  text: string;
  outcome: "running" | "kept" | "failed" | "killed";
}

/** A worker that answers a request in a text of its own. */
async function work(
  world: KeptWorld,
  log: SimulatedLog,
  offerNumber: number,
): Promise<SimulatedWorker> {
  const worker: SimulatedWorker = { text: "", outcome: "running" };
  await world.delay((offerNumber - 1) * 2_000);
  let isKilled = false;
  // Calls of a killed process that are under way may still arrive.
  const untilKilled = <T>(call: Promise<T>): Promise<T> =>
    call.finally(() => isKilled ? new Promise<never>(() => {}) : undefined);
  const turns = new EntryTurns(world.schedule);
  const writer = new KeptWriter({
    requestId: RECORD.requestId,
    key: RECORD.key,
    offerNumber,
    log: {
      append: (...call) => untilKilled(log.append(...call)),
      last: () => untilKilled(log.last()),
    },
    now: () => world.nowMs,
    schedule: world.schedule,
    afterPause: (run) =>
      turns.after(run, Math.floor(world.random() * JOBS_MAX)),
    onFailed: () => {
      worker.outcome = "failed";
    },
  });
  const parts = Math.floor(world.random() * PARTS_MAX);
  for (let part = 0; part < parts; part += 1) {
    await world.delay(world.happens(0.1) ? 8_000 : 100);
    writer.onTick(world.nowMs);
    if (world.happens(0.02)) isKilled = true;
    if (isKilled) {
      writer.close();
      worker.outcome = "killed";
      return worker;
    }
    if (worker.outcome === "failed") return worker;
    const text = `${offerNumber}:${part}${".".repeat(world.random() * 9)} `;
    worker.text += text;
    await writer.write(encoder.encode(text), part + 1);
  }
  const payload = encoder.encode('{"worker":"W","usage":null}');
  await writer.end({ type: FrameType.END, payload, tokens: parts }).then(
    () => {
      worker.outcome = "kept";
    },
    () => {
      worker.outcome = "failed";
    },
  );
  return worker;
}

/** Reads in one or several goes. Returns what it has got, and whether that was all. */
async function read(
  world: KeptWorld,
  log: SimulatedLog,
  isOver: () => boolean,
): Promise<{ text: string; isWhole: boolean }> {
  let text = "";
  for (;;) {
    await world.delay(3_000);
    let partsLeft = world.happens(0.5) ? Infinity : world.random() * 5;
    let got = "";
    const reading = new KeptReading({
      record: RECORD,
      log,
      records: {
        find: () =>
          Promise.resolve(isOver() ? { ...RECORD, state: "failed" } : RECORD),
      },
      now: () => world.nowMs,
      schedule: world.schedule,
    });
    try {
      for (; partsLeft > 0; partsLeft -= 1) {
        const part = await reading.next();
        assert.ok(part !== null);
        if (part.type === "end") {
          assert.ok(got.startsWith(text), "it read something else before");
          return { text: got, isWhole: true };
        }
        got += decoder.decode(part.payload);
      }
    } catch (error) {
      assert.ok(error instanceof ApiError, `${error}`);
      assert.ok(got.startsWith(text) || text.startsWith(got), got);
      if (isOver() && log.entries.length === 0) return { text, isWhole: false };
      if (world.nowMs > RUN_MS / 2) return { text, isWhole: false };
    } finally {
      reading.close();
    }
    assert.ok(got.startsWith(text) || text.startsWith(got), `${text}|${got}`);
    if (got.length > text.length) text = got;
  }
}

/** One run. Returns how many workers have kept an answer. */
async function simulate(seed: number): Promise<number> {
  const world = new KeptWorld(seededRandom(seed));
  const log = new SimulatedLog(world, world.random() * 0.2);
  const count = 1 + Math.floor(world.random() * WORKERS_MAX);
  let running = count;
  const working = Array.from({ length: count }, async (_, index) => {
    const worker = await work(world, log, index + 1);
    running -= 1;
    return worker;
  });
  const readers = Array.from(
    { length: READERS },
    () => read(world, log, () => running === 0),
  );
  const all = Promise.all([Promise.all(working), Promise.all(readers)]);
  // A failed expectation of a reader is reported below.
  all.catch(() => {});
  await world.play(2 * RUN_MS);
  const [workers, read_] = await all;
  const kept = workers.filter(({ outcome }) => outcome === "kept");
  assert.ok(kept.length <= 1, "two answers were kept");
  const [winner] = kept;
  for (const { text, isWhole } of read_) {
    assert.ok(workers.some((worker) => worker.text.startsWith(text)), text);
    if (winner === undefined) continue;
    assert.ok(isWhole, "the answer is in the log, but was not read to its end");
    assert.equal(text, winner.text);
  }
  return kept.length;
}

const seeds = seedsOr(Array.from({ length: RUNS }, (_, index) => index + 1));

Deno.test(`every reader gets one kept answer whole in ${seeds.length} simulated runs`, async () => {
  let kept = 0;
  for (const seed of seeds) {
    try {
      kept += await simulate(seed);
    } catch (error) {
      throw new Error(`In the run TEST_SEED=${seed}`, { cause: error });
    }
  }
  if (seeds.length > 1) assert.ok(kept > seeds.length / 2, `${kept} kept`);
  print(`${kept} of ${seeds.length} answers were kept whole`);
});
