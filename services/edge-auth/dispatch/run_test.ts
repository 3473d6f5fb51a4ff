/** A run, with ports that write down what it does; no dispatcher, no bus. */
import assert from "node:assert/strict";
import {
  encodeErr,
  encodeJson,
  type Frame,
  FrameType,
} from "@gateway/shared/bus/frame";
import { decodeJob } from "@gateway/shared/bus/job";
import { ApiError } from "@gateway/shared/openai/error";
import { silentLog } from "@gateway/shared/process/log";
import type { AnswerSink, RunOutcome } from "./outcome.ts";
import { WholeBody } from "./request_body.ts";
import { Run } from "./run.ts";
import type { RunTools } from "./run_ports.ts";

const REQUEST = { model: "m", stream: true, messages: [] };

/** `workers`: who has a free slot, in the order in which they are picked. */
function setup(workers: readonly string[] = ["w1", "w2"]) {
  const events: string[] = [];
  const jobs: Uint8Array[] = [];
  const outcomes: RunOutcome[] = [];
  const tools: RunTools = {
    bus: {
      isConnected: true,
      sendJob: (subject, job) => {
        events.push(`offer ${subject.split(".").at(-1)}`);
        jobs.push(job);
        return true;
      },
      sendPiece: () => Promise.resolve(),
      control: (_family, workerId, { type }) =>
        void events.push(`${type} ${workerId}`),
      hasFailedSince: () => false,
      isSilentSince: () => false,
    },
    workers: {
      pick: (_model, tried) => workers.find((id) => !tried.has(id)) ?? null,
      hasWorkerFor: () => true,
      pause: () => {},
      onSent: (id) => void events.push(`slot taken ${id}`),
      onEnded: (id) => void events.push(`slot freed ${id}`),
      onMissing: () => {},
    },
    queue: { hasWaiting: () => false, push: () => true },
    clock: { now: () => 0, steadyNow: () => 0 },
    log: silentLog,
    requestTimeoutMs: 60_000,
  };
  const sink: AnswerSink & { hasStarted: boolean } = {
    hasStarted: false,
    onPayload: () => {},
    onEnd: () => void events.push("end"),
    onError: (error) => void events.push(`error ${error.code}`),
    onAbandoned: () => void events.push("abandoned"),
    onRestart: () => void events.push("restart"),
    onTick: () => {},
  };
  const body = WholeBody.of(REQUEST);
  const requestId = "0".repeat(32);
  const run = new Run(
    { requestId, keyId: "key_a", kind: "chat", model: "m", body },
    { sink, onOver: (outcome) => void outcomes.push(outcome) },
    tools,
  );
  const frame = (part: Partial<Frame> & Pick<Frame, "type">) =>
    run.onFrame({
      sequence: 0,
      tokens: 0,
      attempt: 1,
      payload: new Uint8Array(),
      ...part,
    });
  return {
    run,
    body,
    sink,
    jobs,
    outcomes,
    take: () => events.splice(0),
    accept: (worker: string, attempt = 1) =>
      frame({
        type: FrameType.ACCEPT,
        attempt,
        payload: encodeJson({ worker }),
      }),
    data: (sequence: number, attempt = 1) =>
      frame({
        type: FrameType.DATA,
        attempt,
        sequence,
        payload: new TextEncoder().encode("{}\n"),
      }),
    fail: (worker: string, attempt = 1) => {
      const error = new ApiError("worker_lost", "It was lost.");
      const payload = encodeErr(worker, {
        error,
        retryable: true,
        usage: null,
      });
      frame({ type: FrameType.ERR, attempt, sequence: 1, payload });
    },
  };
}

Deno.test("a run takes the slot of a worker, offers the request to it, and frees the slot at its end", () => {
  const t = setup();
  t.run.start();
  assert.deepEqual(t.take(), ["offer w1", "slot taken w1"]);
  const [job = assert.fail()] = t.jobs;
  assert.partialDeepStrictEqual(decodeJob(job), {
    attempt: 1,
    request: REQUEST,
  });
  t.run.cancel("client_gone");
  assert.deepEqual(t.take(), ["cancel w1", "abandoned"]);
  t.run.onTick(1_000);
  assert.deepEqual(t.take(), ["slot freed w1"]);
  assert.equal(t.outcomes.length, 1);
});

Deno.test("a request is kept while another worker may still take over, and no longer", () => {
  const t = setup();
  t.run.start();
  t.accept("w1");
  assert.ok(t.body.bytes !== null, "the worker may be lost");
  t.fail("w1");
  assert.deepEqual(t.take().slice(-2), ["offer w2", "slot taken w2"]);
  assert.ok(t.body.bytes !== null, "the next worker does not have it yet");
  t.accept("w2", 2);
  assert.equal(t.body.bytes, null, "it is not repeated twice");
});

Deno.test("a request is forgotten as soon as its client has the first byte of the answer", () => {
  const t = setup();
  t.run.start();
  t.accept("w1");
  t.sink.hasStarted = true;
  t.data(1);
  assert.equal(t.body.bytes, null);
});

Deno.test("a request is forgotten when its run is cancelled in any state", () => {
  const states: Record<string, (t: ReturnType<typeof setup>) => void> = {
    "waiting for a slot": () => {},
    "offered": (t) => t.run.start(),
    "accepted": (t) => {
      t.run.start();
      t.accept("w1");
    },
  };
  for (const [name, reach] of Object.entries(states)) {
    const t = setup();
    reach(t);
    t.run.cancel("client_gone");
    assert.equal(t.body.bytes, null, name);
  }
});

Deno.test("a run whose request was given up is not repeated", () => {
  const t = setup();
  t.run.start();
  t.accept("w1");
  t.body.release();
  t.fail("w1");
  assert.deepEqual(t.take().slice(-2), ["error worker_lost", "slot freed w1"]);
  assert.equal(t.outcomes[0]?.kind, "failed");
});
