/**
 * Promise: a worker frees every slot, whatever becomes of a job, and considers no edge
 * dead because it could not hear it.
 */
import assert from "node:assert/strict";
import {
  encodePiece,
  encodeUploadEnd,
  JOB_VERSION,
  type JobMessage,
} from "../bus/job.ts";
import { type ControlRecord, encodeControl } from "../bus/control.ts";
import {
  decodeFrames,
  encodeJson,
  type Frame,
  FrameType,
  parseErr,
  parseReject,
} from "../bus/frame.ts";
import type { BusHandler } from "../bus/link.ts";
import { subjects } from "../bus/subjects.ts";
import { DISPATCH_LIMITS, UPLOAD_LIMITS } from "../limits.ts";
import { silentLog } from "../process/log.ts";
import { MetricRegistry } from "../process/metrics.ts";
import { UpstreamError } from "../upstream/errors.ts";
import type { RunRequest } from "./job.ts";
import { createWorkerMetrics } from "./metrics.ts";
import {
  BUSY_JOBS_MIN,
  Worker,
  WORKER_TICK_MS,
  type WorkerDependencies,
} from "./worker.ts";

const WORKER = "w1";
const EDGE = "e1";
const MODEL = "m";
const FAMILY = "media";
const REQUEST = { model: MODEL, stream: true };
const idOf = (number: number) => number.toString(16).padStart(32, "0");
type Call = Parameters<RunRequest>[1];

/**
 * A backend that sends one line, and ends when it is stopped and `hold` has resolved.
 */
function silentBackend(hold: Promise<void> = Promise.resolve()) {
  const calls: Call[] = [];
  const run: RunRequest = async (_request, call) => {
    calls.push(call);
    void call.write("a\n", 1);
    await new Promise((resolve) => call.signal.onabort = resolve);
    await hold;
    throw new Error("stopped");
  };
  const aborted = () => calls.map((call) => call.signal.aborted);
  return { run, calls, aborted };
}

async function setup(options: { slots?: number; run?: RunRequest } = {}) {
  const clock = { ms: 0 };
  const handlers = new Map<string, BusHandler>();
  const frames: Frame[] = [];
  const flushes: (() => void)[] = [];
  const soon: { run: () => void; waitMs: number }[] = [];
  const flow: { flowingSinceMs: number | null } = { flowingSinceMs: 0 };
  const bus: WorkerDependencies["bus"] = Object.assign(flow, {
    isConnected: true,
    publish(subject: string, payload: Uint8Array) {
      // Anything else is a beat or the answer to a piece.
      if (subject !== subjects.edgeFrames(EDGE)) return;
      const sent = decodeFrames(payload) ?? [];
      frames.push(...sent.map(([, frame]) => frame));
    },
    subscribe(subject: string, handler: BusHandler) {
      handlers.set(subject, handler);
      return { drain: () => Promise.resolve() };
    },
    flush: () => new Promise<void>((resolve) => flushes.push(resolve)),
  });
  const deliver = (
    subscription: string,
    data: Uint8Array,
    { subject = subscription, reply = "" } = {},
  ) => handlers.get(subscription)?.({ subject, data, reply });
  const worker = new Worker({
    bus,
    family: FAMILY,
    workerId: WORKER,
    slots: options.slots ?? 2,
    runners: new Map([[MODEL, options.run ?? silentBackend().run]]),
    now: () => clock.ms,
    wallNow: () => 0,
    schedule: (run, waitMs) =>
      waitMs === 0 ? run() : void soon.push({ run, waitMs }),
    metrics: createWorkerMetrics(new MetricRegistry()),
    log: silentLog,
  });
  const endFlushes = async () => {
    for (const resolve of flushes.splice(0)) resolve();
    await turns();
  };
  const started = worker.start();
  await endFlushes();
  await started;
  const offer = (id: number, job: Partial<JobMessage>) => {
    const envelope = { version: JOB_VERSION, attempt: 1, deadlineMs: 60_000 };
    const message = encodeJson({ ...envelope, ...job });
    const reply = subjects.edgeStream(EDGE, idOf(id), 1);
    deliver(subjects.job(FAMILY, WORKER), message, { reply });
  };
  const deliverPiece = (id: number, message: Uint8Array) =>
    deliver(subjects.bodies(FAMILY, WORKER), message, {
      subject: subjects.body(FAMILY, WORKER, idOf(id)),
    });
  const control = (record: ControlRecord) =>
    deliver(subjects.control(FAMILY, WORKER), encodeControl([record]));
  return {
    clock,
    frames,
    soon,
    worker,
    endFlushes,
    deafen: (isDeaf: boolean) => flow.flowingSinceMs = isDeaf ? null : clock.ms,
    edgeBeats: () =>
      deliver(subjects.edgeBeats, Uint8Array.of(), {
        subject: subjects.edgeBeat(EDGE),
      }),
    job: (id: number, { attempt = 1, model = MODEL } = {}) =>
      offer(id, { attempt, request: { ...REQUEST, model } }),
    announce: (id: number) => offer(id, { upload: true }),
    piece: (id: number, bytes: Uint8Array, index: number) =>
      deliverPiece(id, encodePiece(bytes, 1, index)),
    endPieces: (id: number) =>
      deliverPiece(id, encodeUploadEnd({ files: [] }, 1)),
    ack: (id: number, sequence: number) =>
      control({ type: "ack", requestId: idOf(id), attempt: 1, sequence }),
    cancel(id: number, attempt = 1) {
      const of = { requestId: idOf(id), attempt };
      control({ type: "cancel", reason: "client_gone", ...of });
    },
    tickTo: (ms: number) => {
      while (clock.ms < ms) {
        clock.ms = Math.min(ms, clock.ms + WORKER_TICK_MS);
        worker.tick();
      }
    },
  };
}

const turns = () => new Promise<void>((resolve) => setTimeout(resolve));

const reasonsOf = (frames: Frame[]) =>
  frames.filter(({ type }) => type === FrameType.REJECT)
    .map(({ payload }) => parseReject(payload)?.reason);

const errorsOf = (frames: Frame[]) =>
  frames.filter(({ type }) => type === FrameType.ERR)
    .map(({ payload }) => parseErr(payload) ?? assert.fail("malformed"));

const codesOf = (frames: Frame[]) =>
  errorsOf(frames).map(({ error }) => error.code);

Deno.test("a worker refuses what it cannot run now, and says why", async () => {
  const t = await setup({ slots: 1 });
  t.job(1, { model: "other" });
  t.job(2);
  t.job(3);
  assert.deepEqual(reasonsOf(t.frames), ["unknown_model", "full"]);
  assert.equal(t.worker.inFlight, 1);
  t.cancel(2);
  await turns();
  const drained = t.worker.drain(1_000);
  t.job(4);
  assert.equal(reasonsOf(t.frames).at(-1), "draining");
  await drained;
});

Deno.test("a worker that was stalled rejects the jobs that piled up, until a flush proves that all are read", async () => {
  const t = await setup();
  t.clock.ms = DISPATCH_LIMITS.acceptMs + 1;
  t.job(1);
  t.worker.tick();
  t.job(2);
  assert.deepEqual(reasonsOf(t.frames), ["stale", "stale"]);
  await t.endFlushes();
  t.job(3);
  assert.equal(t.worker.inFlight, 1);
});

Deno.test("a slot is taken until the backend has really stopped", async () => {
  const hold = Promise.withResolvers<void>();
  const { run, aborted } = silentBackend(hold.promise);
  const t = await setup({ slots: 1, run });
  t.job(1);
  await turns();
  t.cancel(1);
  assert.deepEqual(aborted(), [true]);
  t.job(2);
  assert.deepEqual(reasonsOf(t.frames), ["full"]);
  hold.resolve();
  await turns();
  assert.equal(t.worker.inFlight, 0);
  assert.equal(errorsOf(t.frames).length, 1, "one frame with its cost");
});

Deno.test("an answer that is complete just after its job was cancelled is reported with its cost", async () => {
  const t = await setup({
    async run(_request, { signal }) {
      await new Promise((resolve) => signal.onabort = resolve);
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

Deno.test("a second attempt of a request stops the first, and each frees its slot", async () => {
  const { run, aborted } = silentBackend();
  const t = await setup({ run });
  t.job(1);
  await turns();
  t.job(1, { attempt: 2 });
  await turns();
  assert.deepEqual(aborted(), [true, false]);
  assert.equal(t.worker.inFlight, 1);
  t.cancel(1);
  assert.deepEqual(aborted(), [true, false], "meant the first attempt");
  t.cancel(1, 2);
  await turns();
  assert.equal(t.worker.inFlight, 0);
});

Deno.test("a request whose body comes in pieces frees its slot in any case", async () => {
  const content = "x".repeat(100);
  const request = { ...REQUEST, messages: [{ role: "user", content }] };
  const body = new TextEncoder().encode(JSON.stringify(request));
  const halves = [body.subarray(0, 99), body.subarray(99)] as const;
  type Rig = Awaited<ReturnType<typeof setup>>;
  const cases: [how: string, error: string, end: (t: Rig) => void][] = [
    ["cancelled", "worker_lost", (t) => t.cancel(1)],
    ["incomplete for too long", "worker_lost", (t) => {
      for (let ms = 0; ms <= UPLOAD_LIMITS.totalMs; ms += 500) {
        t.edgeBeats();
        t.tickTo(ms);
      }
    }],
    ["with a gap", "worker_lost", (t) => t.piece(1, halves[1], 2)],
    ["not JSON", "internal_error", (t) => t.endPieces(1)],
  ];
  for (const [how, error, end] of cases) {
    const t = await setup();
    t.announce(1);
    t.piece(1, halves[0], 0);
    assert.equal(t.worker.inFlight, 1, how);
    end(t);
    assert.equal(t.worker.inFlight, 0, how);
    assert.deepEqual(codesOf(t.frames), [error], how);
    t.piece(1, halves[1], 1);
    t.cancel(1);
    assert.equal(t.worker.inFlight, 0, how);
  }
});

Deno.test("a job of a silent edge is cancelled, unless the worker was stalled or could not hear it", async () => {
  const { run, aborted } = silentBackend();
  const t = await setup({ run });
  t.job(1);
  await turns();
  t.clock.ms = 5 * DISPATCH_LIMITS.edgeLostMs;
  for (const _ of [1, 2]) t.worker.tick();
  assert.deepEqual(aborted(), [false], "stalled");
  t.deafen(true);
  t.tickTo(7 * DISPATCH_LIMITS.edgeLostMs);
  assert.deepEqual(aborted(), [false], "deaf");
  t.deafen(false);
  const hearsAgainMs = t.clock.ms;
  t.tickTo(hearsAgainMs + DISPATCH_LIMITS.edgeLostMs - WORKER_TICK_MS);
  assert.deepEqual(aborted(), [false], "the silence began anew");
  t.tickTo(hearsAgainMs + DISPATCH_LIMITS.edgeLostMs + 500);
  assert.deepEqual(aborted(), [true]);
  await turns();
  assert.equal(t.worker.inFlight, 0);
});

Deno.test("a job that must stop does so although its client reads nothing", async () => {
  const chunk = "x".repeat(60_000);
  const t = await setup({
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
  assert.deepEqual(codesOf(t.frames), ["server_shutdown"]);
  await drained;
});

Deno.test("the error of a backend reaches the client, that of an internal fault does not", async () => {
  const usage = { prompt_tokens: 1, completion_tokens: 7, total_tokens: 8 };
  const theirs = new UpstreamError("invalid", { message: "Bad", usage });
  const failures: [Error, code: string, message: RegExp, object | null][] = [
    [theirs, "upstream_invalid", /^Bad$/, usage],
    [new Error("secret"), "internal_error", /^The server had an error /, null],
  ];
  for (const [thrown, code, message, cost] of failures) {
    const t = await setup({ run: () => Promise.reject(thrown) });
    t.job(1);
    await turns();
    const [{ error, usage } = assert.fail("no error")] = errorsOf(t.frames);
    assert.deepEqual([error.code, usage], [code, cost]);
    assert.match(error.message, message);
    assert.ok(!error.message.includes("secret"));
  }
});

Deno.test("a busy worker pauses all streams together", async () => {
  const { run, calls } = silentBackend();
  const t = await setup({ slots: 300, run });
  const endPause = () =>
    t.soon.splice(0).map(({ run, waitMs }) => (run(), waitMs.toFixed(1)));
  for (let id = 1; id < BUSY_JOBS_MIN; id += 1) t.job(id);
  assert.equal(calls[0]?.pause(), undefined, "not busy yet");
  t.job(BUSY_JOBS_MIN);
  const pause = calls[0]?.pause();
  assert.equal(calls[1]?.pause(), pause);
  assert.deepEqual(endPause(), ["6.4"]);
  await pause;
  const cut = calls[0]?.pause();
  t.cancel(1);
  await cut;
  assert.equal(calls[0]?.signal.aborted, false, "reads once more");
  assert.deepEqual(endPause(), ["6.4", "5.0"]);
  assert.equal(calls[0]?.signal.aborted, true);
  for (let id = BUSY_JOBS_MIN + 1; id < 199; id += 1) t.job(id);
  for (const [id, pauseMs] of [[199, "79.6"], [200, "80.0"], [201, "80.0"]]) {
    t.job(Number(id));
    void calls[0]?.pause();
    assert.deepEqual(endPause(), [pauseMs]);
  }
});
