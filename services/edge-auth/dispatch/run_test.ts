/** A run, with ports that write down what it does; no dispatcher, no bus. */
import assert from "node:assert/strict";
import {
  encodeJson,
  type Frame,
  FrameType,
} from "@gateway/shared/bus/stream/frame";
import { encodeErr } from "@gateway/shared/bus/stream/payloads";
import { decodeJob } from "@gateway/shared/bus/job";
import { QUEUE_DEFAULT } from "@gateway/shared/models/queue";
import { ApiError } from "@gateway/shared/openai/error";
import { silentLog } from "@gateway/shared/process/log";
import type { AnswerSink, RunOutcome } from "./outcome.ts";
import { WholeBody } from "./request_body.ts";
import { Run } from "./run.ts";
import type { RunTools } from "./run_ports.ts";

const REQUEST = { model: "m", stream: true, messages: [] };

/** A client that writes down what it gets. */
class Client implements AnswerSink {
  hasStarted = false;
  readonly #events: string[];

  constructor(events: string[]) {
    this.#events = events;
  }

  onPayload(): void {}
  onTick(): void {}

  onEnd(): void {
    this.#events.push("end");
  }

  onError(error: ApiError): void {
    this.#events.push(`error ${error.code}`);
  }

  onAbandoned(): void {
    this.#events.push("abandoned");
  }

  onRestart(): void {
    this.#events.push("restart");
  }
}

/** A run, and everything around it. */
class Stage {
  readonly run: Run;
  readonly body = WholeBody.encode(REQUEST);
  readonly outcomes: RunOutcome[] = [];
  /** The jobs that were sent. */
  readonly jobs: Uint8Array[] = [];
  readonly #events: string[] = [];
  readonly client = new Client(this.#events);

  /** `workers`: who has a free slot, in the order in which they are picked. */
  constructor(workers: readonly string[] = ["w1", "w2"]) {
    this.run = new Run(
      {
        requestId: "0".repeat(32),
        keyId: "key_a",
        kind: "chat",
        model: "m",
        body: this.body,
      },
      {
        sink: this.client,
        onEnded: (outcome) => void this.outcomes.push(outcome),
      },
      this.#toolsWith(workers),
    );
  }

  /** What happened since the last call, in order. */
  take(): string[] {
    return this.#events.splice(0);
  }

  /** The worker accepts the job. */
  accept(worker: string, offerNumber = 1): void {
    const payload = encodeJson({ worker });
    this.#frame({ type: FrameType.ACCEPT, offerNumber, payload });
  }

  /** The worker sends a line of the answer. */
  data(sequence: number, offerNumber = 1): void {
    const payload = new TextEncoder().encode("{}\n");
    this.#frame({ type: FrameType.DATA, offerNumber, sequence, payload });
  }

  /** The worker fails by its own fault. */
  fail(worker: string, offerNumber = 1): void {
    const error = new ApiError("worker_lost", "It was lost.");
    const failure = { error, retryable: true, usage: null };
    const payload = encodeErr(worker, failure);
    this.#frame({ type: FrameType.ERR, offerNumber, sequence: 1, payload });
  }

  #frame(part: Partial<Frame> & Pick<Frame, "type">): void {
    this.run.onFrame({
      sequence: 0,
      tokens: 0,
      offerNumber: 1,
      payload: new Uint8Array(),
      ...part,
    });
  }

  #toolsWith(workers: readonly string[]): RunTools {
    const note = (event: string) => void this.#events.push(event);
    return {
      bus: {
        isConnected: true,
        sendJob: (subject, job) => {
          note(`offer ${subject.split(".").at(-1)}`);
          this.jobs.push(job);
          return true;
        },
        sendPiece: () => Promise.resolve(),
        control: (_family, workerId, { type }) => note(`${type} ${workerId}`),
        hasFailedSince: () => false,
        isSilentSince: () => false,
      },
      workers: {
        pick: (_model, tried) =>
          workers.find((id) => !tried.includes(id)) ?? null,
        hasWorkerFor: () => true,
        saturatedMs: () => 0,
        pause: () => {},
        onAccepted: () => {},
        onRejected: () => {},
        onSent: (id) => note(`slot taken ${id}`),
        onEnded: (id) => note(`slot freed ${id}`),
        onMissing: () => {},
      },
      queue: { hasWaiting: () => false, push: () => null },
      queueOf: () => QUEUE_DEFAULT,
      clock: { now: () => 0, steadyNow: () => 0 },
      log: silentLog,
      refusalOf: () => null,
      onOver: (run) => assert.equal(run, this.run),
      requestTimeoutMs: 60_000,
    };
  }
}

Deno.test("a run takes the slot of a worker, offers the request to it, and frees the slot at its end", () => {
  const t = new Stage();
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
  const t = new Stage();
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
  const t = new Stage();
  t.run.start();
  t.accept("w1");
  t.client.hasStarted = true;
  t.data(1);
  assert.equal(t.body.bytes, null);
});

Deno.test("a request is forgotten when its run is cancelled in any state", () => {
  const states: Record<string, (t: Stage) => void> = {
    "waiting for a slot": () => {},
    "offered": (t) => t.run.start(),
    "accepted": (t) => {
      t.run.start();
      t.accept("w1");
    },
  };
  for (const [name, reach] of Object.entries(states)) {
    const t = new Stage();
    reach(t);
    t.run.cancel("client_gone");
    assert.equal(t.body.bytes, null, name);
  }
});

Deno.test("a run whose request was given up is not repeated", () => {
  const t = new Stage();
  t.run.start();
  t.accept("w1");
  t.body.release();
  t.fail("w1");
  assert.deepEqual(t.take().slice(-2), ["error worker_lost", "slot freed w1"]);
  assert.equal(t.outcomes[0]?.kind, "failed");
});
