/**
 * Promise: a worker frees every slot, whatever becomes of a job, and considers no edge
 * dead because it could not hear it.
 */
import assert from "node:assert/strict";
import { FrameType } from "../bus/stream/frame.ts";
import { DISPATCH_LIMITS, UPLOAD_LIMITS } from "../limits.ts";
import { UpstreamError } from "../upstream/http/errors.ts";
import { BUSY_JOBS_MIN } from "./stream_pauses.ts";
import { WORKER_TICK_MS } from "./worker.ts";
import {
  abortOf,
  REQUEST,
  SilentBackend,
  turns,
  WorkerRig,
} from "./worker_fixture.ts";

Deno.test("a worker refuses what it cannot run now, and says why", async () => {
  const t = await WorkerRig.start({ slots: 1 });
  t.job(1, { model: "other" });
  t.job(2);
  t.job(3);
  assert.deepEqual(t.rejections, ["unknown_model", "full"]);
  assert.equal(t.worker.inFlight, 1);
  t.cancel(2);
  await turns();
  const drained = t.worker.drain(1_000);
  t.job(4);
  assert.equal(t.rejections.at(-1), "draining");
  await drained;
});

Deno.test("a worker that was stalled rejects jobs until a flush proves that it has read all of them", async () => {
  const t = await WorkerRig.start();
  t.nowMs = DISPATCH_LIMITS.acceptMs + 1;
  t.job(1);
  t.worker.tick();
  t.job(2);
  assert.deepEqual(t.rejections, ["stale", "stale"]);
  await t.endFlushes();
  t.job(3);
  assert.equal(t.worker.inFlight, 1);
});

Deno.test("a slot is taken until the backend has really stopped", async () => {
  const hold = Promise.withResolvers<void>();
  const backend = new SilentBackend(hold.promise);
  const t = await WorkerRig.start({ slots: 1, run: backend.run });
  t.job(1);
  await turns();
  t.cancel(1);
  assert.deepEqual(backend.aborted(), [true]);
  t.job(2);
  assert.deepEqual(t.rejections, ["full"]);
  hold.resolve();
  await turns();
  assert.equal(t.worker.inFlight, 0);
  assert.equal(t.errors.length, 1, "one frame with its cost");
});

Deno.test("an answer that is complete just after its job was cancelled reports its cost", async () => {
  const t = await WorkerRig.start({
    async run(_request, { signal }) {
      await abortOf(signal);
      return { usage: null, tokens: 3 };
    },
  });
  t.job(1);
  await turns();
  t.cancel(1);
  await turns();
  const last = t.frames.at(-1) ?? assert.fail("no frame");
  assert.deepEqual([last.type, last.tokens], [FrameType.ERR, 3]);
  assert.equal(t.worker.inFlight, 0);
});

Deno.test("a second offer of a request stops the first, and each frees its slot", async () => {
  const backend = new SilentBackend();
  const t = await WorkerRig.start({ run: backend.run });
  t.job(1);
  await turns();
  t.job(1, { offerNumber: 2 });
  await turns();
  assert.deepEqual(backend.aborted(), [true, false]);
  assert.equal(t.worker.inFlight, 1);
  t.cancel(1);
  assert.deepEqual(backend.aborted(), [true, false], "meant the first offer");
  t.cancel(1, 2);
  await turns();
  assert.equal(t.worker.inFlight, 0);
});

Deno.test("a request whose body comes in pieces frees its slot in any case", async () => {
  const content = "x".repeat(100);
  const request = { ...REQUEST, messages: [{ role: "user", content }] };
  const body = new TextEncoder().encode(JSON.stringify(request));
  const first = body.subarray(0, 99);
  const second = body.subarray(99);
  const cases: { how: string; error: string; end: (t: WorkerRig) => void }[] = [
    { how: "cancelled", error: "worker_lost", end: (t) => t.cancel(1) },
    {
      how: "incomplete for too long",
      error: "worker_lost",
      end(t) {
        for (let ms = 0; ms <= UPLOAD_LIMITS.totalMs; ms += 500) {
          t.edgeBeats();
          t.tickTo(ms);
        }
      },
    },
    {
      how: "with a gap",
      error: "worker_lost",
      end: (t) => t.piece(1, second, 2),
    },
    { how: "not JSON", error: "internal_error", end: (t) => t.endPieces(1) },
  ];
  for (const { how, error, end } of cases) {
    const t = await WorkerRig.start();
    t.announce(1);
    t.piece(1, first, 0);
    assert.equal(t.worker.inFlight, 1, how);
    end(t);
    assert.equal(t.worker.inFlight, 0, how);
    assert.deepEqual(t.errorCodes, [error], how);
    t.piece(1, second, 1);
    t.cancel(1);
    assert.equal(t.worker.inFlight, 0, how);
  }
});

Deno.test("API4: an upload beyond the memory of a worker waits a second, is refused, and frees all of it", async () => {
  const backend = new SilentBackend();
  const t = await WorkerRig.start({ heldBytesMax: 300, run: backend.run });
  const piece = new Uint8Array(100);
  t.announce(1);
  t.announce(2);
  for (const index of [0, 1]) t.piece(1, piece, index);
  t.piece(2, piece, 0);
  assert.deepEqual(t.errorCodes, []);
  t.piece(2, piece, 1);
  t.tickTo(950);
  await turns();
  assert.deepEqual(t.errorCodes, []);
  t.tickTo(1_000);
  await turns();
  assert.deepEqual(t.errorCodes, ["overloaded"]);
  const [refusal = assert.fail("no error")] = t.errors;
  assert.equal(refusal.error.retryAfterMs, 1_000);
  assert.ok(refusal.retryable);
  assert.equal(t.memory.bytes, 200);
  t.endFiles(1, [200]);
  await turns();
  assert.equal(backend.calls[0]?.files[0]?.content.length, 200);
  assert.equal(t.memory.bytes, 200, "held until the request ends");
  t.cancel(1);
  await turns();
  assert.equal(t.memory.bytes, 0);
});

Deno.test("API4: a piece that waits for memory is acknowledged when another request has ended", async () => {
  const t = await WorkerRig.start({ heldBytesMax: 300 });
  const piece = new Uint8Array(100);
  t.announce(1);
  t.announce(2);
  for (const index of [0, 1]) t.piece(1, piece, index);
  t.piece(2, piece, 0);
  t.piece(2, piece, 1);
  await turns();
  assert.equal(t.acknowledged, 3);
  t.cancel(1);
  await turns();
  assert.equal(t.acknowledged, 4);
  assert.equal(t.memory.bytes, 200);
  t.piece(2, piece, 2);
  t.piece(2, piece, 3);
  t.cancel(2);
  await turns();
  assert.equal(t.memory.bytes, 0, "what waits is forgotten with its request");
  assert.equal(t.memory.isFull, false);
  t.tickTo(2_000);
});

Deno.test("API4: a request that came in pieces counts with its copies until it ends", async () => {
  const content = "x".repeat(100);
  const body = new TextEncoder().encode(
    JSON.stringify({ ...REQUEST, content }),
  );
  const t = await WorkerRig.start();
  t.announce(1);
  t.piece(1, body, 0);
  assert.equal(t.memory.bytes, body.length);
  t.endPieces(1);
  assert.equal(t.memory.bytes, 8 * body.length);
  t.cancel(1);
  await turns();
  assert.equal(t.memory.bytes, 0);
});

Deno.test("the jobs of a silent edge are cancelled, unless the worker could not hear it", async () => {
  const backend = new SilentBackend();
  const t = await WorkerRig.start({ run: backend.run });
  t.job(1);
  await turns();
  t.nowMs = 5 * DISPATCH_LIMITS.edgeLostMs;
  for (const _ of [1, 2]) t.worker.tick();
  assert.deepEqual(backend.aborted(), [false], "stalled");
  t.deafen();
  t.tickTo(7 * DISPATCH_LIMITS.edgeLostMs);
  assert.deepEqual(backend.aborted(), [false], "deaf");
  t.hear();
  const hearsAgainMs = t.nowMs;
  t.tickTo(hearsAgainMs + DISPATCH_LIMITS.edgeLostMs - WORKER_TICK_MS);
  assert.deepEqual(backend.aborted(), [false], "the silence began anew");
  t.tickTo(hearsAgainMs + DISPATCH_LIMITS.edgeLostMs + 500);
  assert.deepEqual(backend.aborted(), [true]);
  await turns();
  assert.equal(t.worker.inFlight, 0);
});

Deno.test("a job that must stop does so although its client reads nothing", async () => {
  const chunk = "x".repeat(60_000);
  const t = await WorkerRig.start({
    async run(_request, { signal, write }) {
      while (true) {
        await write(chunk, 1);
        signal.throwIfAborted();
      }
    },
  });
  t.job(1);
  await turns();
  const drained = t.worker.drain(0);
  await turns();
  assert.equal(t.worker.inFlight, 0);
  // The client reads it all after all, and the error last.
  for (let sequence = 1; sequence < 100; sequence += 1) t.ack(1, sequence);
  assert.deepEqual(t.errorCodes, ["server_shutdown"]);
  await drained;
});

Deno.test("the error of a backend reaches the client, that of an internal fault does not", async () => {
  const usage = { prompt_tokens: 1, completion_tokens: 7, total_tokens: 8 };
  const theirs = new UpstreamError("invalid", { message: "Bad", usage });
  const failures = [
    { thrown: theirs, code: "upstream_invalid", message: /^Bad$/, cost: usage },
    {
      thrown: new Error("secret"),
      code: "internal_error",
      message: /^The server had an error /,
      cost: null,
    },
  ];
  for (const { thrown, code, message, cost } of failures) {
    const t = await WorkerRig.start({ run: () => Promise.reject(thrown) });
    t.job(1);
    await turns();
    const [{ error, usage } = assert.fail("no error")] = t.errors;
    assert.deepEqual([error.code, usage], [code, cost]);
    assert.match(error.message, message);
    assert.ok(!error.message.includes("secret"));
  }
});

Deno.test("a busy worker pauses all streams together", async () => {
  const { run, calls } = new SilentBackend();
  const t = await WorkerRig.start({ slots: 300, run });
  const endPause = () => {
    const ended = t.scheduled.splice(0);
    for (const { run } of ended) run();
    return ended.map(({ waitMs }) => waitMs.toFixed(1));
  };
  for (let id = 1; id < BUSY_JOBS_MIN; id += 1) t.job(id);
  assert.equal(calls[0]?.pause(), undefined, "not busy yet");
  t.job(BUSY_JOBS_MIN);
  const pause = calls[0]?.pause();
  assert.equal(calls[1]?.pause(), pause);
  assert.deepEqual(endPause(), ["29.8"]);
  await pause;
  const cut = calls[0]?.pause();
  t.cancel(1);
  await cut;
  assert.equal(calls[0]?.signal.aborted, false, "reads once more");
  assert.deepEqual(endPause(), ["29.8", "5.0"]);
  assert.equal(calls[0]?.signal.aborted, true);
  for (let id = BUSY_JOBS_MIN + 1; id < 183; id += 1) t.job(id);
  const longest = [
    { id: 183, pauseMs: "79.9" },
    { id: 184, pauseMs: "80.0" },
    { id: 185, pauseMs: "80.0" },
  ];
  for (const { id, pauseMs } of longest) {
    t.job(id);
    void calls[0]?.pause();
    assert.deepEqual(endPause(), [pauseMs]);
  }
});

Deno.test("a slot is kept for the edge whose turn it is, until that has used or returned it", async () => {
  const backend = new SilentBackend();
  const t = await WorkerRig.start({ slots: 1, run: backend.run });
  t.job(1);
  t.edgeBeats("e2", 3);
  const free = async (id: number) => {
    await turns();
    t.cancel(id);
    await turns();
  };
  await free(1);
  assert.deepEqual(t.takeTurns(), ["e1 passed", "e2 kept"]);
  t.job(2);
  assert.deepEqual(t.rejections, ["full"]);
  t.tickTo(250);
  assert.equal(t.beatInFlight, 1, "others hear that it is taken");
  t.edgeBeats("e2", 3);
  t.job(3, { edge: "e2" });
  assert.equal(t.worker.inFlight, 1);
  await free(3);
  // It was the turn of the edge that freed it, which did not use it in time.
  t.tickTo(t.nowMs + 250);
  assert.deepEqual(t.takeTurns(), []);
  t.edgeBeats("e2", 1);
  t.tickTo(t.nowMs + 50);
  assert.deepEqual(t.takeTurns(), ["e2 kept"]);
  t.returnTurn("e2");
  t.tickTo(t.nowMs + 50);
  assert.equal(t.beatInFlight, 0, "all hear that it is free");
});
