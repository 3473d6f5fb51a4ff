/**
 * Guarantee: a run ends exactly once, in time, whatever its workers do; a lost
 * attempt is repeated once, and never after the client has seen a byte.
 */
import assert from "node:assert/strict";
import { decodeFrame, encodeFrame, FrameType } from "@gateway/shared/bus/frame";
import {
  encodeAccept,
  encodeEnd,
  encodeErr,
  encodeRejectFrame,
  errPayloadOf,
  type RejectReason,
} from "@gateway/shared/bus/frame";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { silentLog } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import {
  type AnswerSink,
  type BusSince,
  ChatRun,
  type RunAction,
  type RunOutcome,
} from "./run.ts";

const REQUEST_ID = "0".repeat(32);
const TIMEOUT_MS = 60_000;
const USAGE = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 };

/** A run whose every step the test decides; `events` has what it did, in order. */
function setup(
  options: {
    workers?: (string | null)[];
    bus?: BusSince;
  } = {},
) {
  const clock = { ms: 0 };
  const events: string[] = [];
  const outcomes: RunOutcome[] = [];
  /** What each search finds: a worker, anybody (null), or nobody (none left). */
  const workers = [...options.workers ?? ["w1"]];
  let hasStarted = false;
  const sink: AnswerSink = {
    get hasStarted() {
      return hasStarted;
    },
    onPayload: (payload: Uint8Array) => {
      hasStarted = true;
      events.push(`payload ${new TextDecoder().decode(payload)}`);
    },
    onEnd: () => void events.push("end"),
    onError: (error: ApiError) => void events.push(`error ${error.code}`),
    onAbandoned: () => void events.push("abandoned"),
    onRestart: () => void events.push("restart"),
    onTick: () => {},
  };
  const run = new ChatRun({
    job: {
      requestId: REQUEST_ID,
      request: {
        model: "m",
        messages: [{ role: "user", content: "x" }],
        stream: true,
        include_usage: false,
        n: 1,
      },
    },
    sink,
    timeoutMs: TIMEOUT_MS,
    now: () => clock.ms,
    steadyNow: () => clock.ms,
    log: silentLog,
    busSince: () => options.bus ?? "carried",
    controlFor: (workerId) => ({
      ack: (_id, attempt, sequence) =>
        void events.push(`ack ${workerId} ${attempt}.${sequence}`),
      nak: (_id, attempt, from) =>
        void events.push(`nak ${workerId} ${attempt}.${from}`),
      cancel: (_id, attempt, reason) =>
        void events.push(`cancel ${workerId} ${attempt} ${reason}`),
    }),
  });
  /** As the dispatcher does: offers the job to the next worker, or queues it. */
  const offer = () => {
    const worker = workers.shift();
    if (worker === undefined) {
      events.push("wait");
      return;
    }
    events.push(`offer ${worker ?? "anybody"}`);
    run.onOffered(worker);
  };
  const drive = (actions: readonly RunAction[]) => {
    for (const action of actions) {
      switch (action.type) {
        case "search":
          offer();
          break;
        case "wait":
          events.push("wait");
          break;
        case "accepted":
          events.push(`accepted ${action.workerId}`);
          break;
        case "left":
          events.push(
            `left ${action.workerId} ${action.reason.type}${
              action.hadSlot ? ", slot" : ""
            }`,
          );
          break;
        case "over":
          outcomes.push(action.outcome);
          events.push(`over ${action.outcome.kind}`);
      }
    }
  };
  const feed = (message: Uint8Array): boolean => {
    const frame = decodeFrame(message);
    assert.ok(typeof frame !== "string");
    const actions = run.onFrame(frame);
    drive(actions ?? []);
    return actions !== null;
  };
  const frame = (
    type: typeof FrameType[keyof typeof FrameType],
    payload: Uint8Array,
    header: { sequence?: number; attempt?: number; tokens?: number } = {},
  ) =>
    feed(encodeFrame({
      type,
      sequence: header.sequence ?? 0,
      attempt: header.attempt ?? run.attempt,
      tokens: header.tokens ?? 0,
    }, payload));
  const tickTo = (ms: number) => {
    // In small steps: one large step would look like a stall of our own.
    while (clock.ms < ms) {
      clock.ms = Math.min(ms, clock.ms + 25);
      drive(run.onTick(clock.ms));
    }
  };
  const error = (isOurs: boolean) =>
    encodeErr(
      "w1",
      errPayloadOf(new ApiError("upstream_error", "It failed."), {
        retryable: isOurs,
        usage: null,
      }),
    );
  return {
    clock,
    events,
    outcomes,
    workers,
    run,
    offer,
    drive,
    frame,
    tickTo,
    accept: (worker = "w1") => frame(FrameType.ACCEPT, encodeAccept(worker)),
    data: (text: string, sequence: number, tokens = 0) =>
      frame(FrameType.DATA, new TextEncoder().encode(text), {
        sequence,
        tokens,
      }),
    end: (sequence: number) =>
      frame(
        FrameType.END,
        encodeEnd("w1", { usage: USAGE, finishReasons: ["stop"] }),
        {
          sequence,
          tokens: 2,
        },
      ),
    err: (sequence: number, isOurs: boolean) =>
      frame(FrameType.ERR, error(isOurs), { sequence }),
    reject: (reason: RejectReason, worker = "w1") =>
      feed(
        encodeRejectFrame(run.attempt, { worker, reason, retryAfterMs: null }),
      ),
  };
}

Deno.test("a run that goes well", () => {
  const t = setup();
  t.offer();
  t.data("a\n", 1, 1);
  t.end(2);
  assert.deepEqual(t.events, [
    "offer w1",
    "payload a\n",
    "accepted w1",
    "ack w1 1.2",
    "end",
    "left w1 ended, slot",
    "over complete",
  ]);
  assert.partialDeepStrictEqual(t.outcomes[0], {
    usage: USAGE,
    completionTokens: 2,
    isHeard: true,
    offers: 1,
    workerId: "w1",
    error: null,
  });
});

Deno.test("a rejected run looks elsewhere, and waits when nobody is left", () => {
  const t = setup({ workers: ["w1", "w2"] });
  t.offer();
  t.reject("full");
  t.reject("full", "w2");
  assert.deepEqual(t.events, [
    "offer w1",
    "left w1 refused, slot",
    "offer w2",
    "left w2 refused, slot",
    "wait",
  ]);
  assert.equal(t.run.state, "waiting");
  assert.deepEqual([...t.run.tried], ["w1", "w2"]);
});

Deno.test("after three refusals a run waits for newer beats", () => {
  const t = setup({ workers: ["w1", "w2", "w3", "w4"] });
  t.offer();
  t.reject("full", "w1");
  t.reject("full", "w2");
  t.reject("full", "w3");
  assert.equal(t.events.at(-1), "wait");
});

Deno.test("a run that anybody refused waits instead of asking anybody again", () => {
  for (
    const refuse of [
      (t: ReturnType<typeof setup>) => void t.reject("draining", "w1"),
      (t: ReturnType<typeof setup>) =>
        t.tickTo(t.clock.ms + DISPATCH_LIMITS.acceptMs),
    ]
  ) {
    const t = setup({ workers: [null, null] });
    t.offer();
    refuse(t);
    assert.equal(t.events.at(-1), "wait");
    assert.equal(t.run.state, "waiting");
  }
});

Deno.test("a worker that does not accept in time is passed over, and told", () => {
  const t = setup({ workers: ["w1", "w2"] });
  t.offer();
  t.tickTo(DISPATCH_LIMITS.acceptMs - 1);
  assert.deepEqual(t.events, ["offer w1"]);
  t.tickTo(DISPATCH_LIMITS.acceptMs);
  assert.deepEqual(t.events, [
    "offer w1",
    "cancel w1 1 not_accepted",
    "left w1 silent, slot",
    "offer w2",
  ]);
  // What the first one says later belongs to nobody.
  assert.equal(
    t.frame(FrameType.ACCEPT, encodeAccept("w1"), { attempt: 1 }),
    false,
  );
});

Deno.test("a run whose workers fall silent is not offered to a third", () => {
  type Run = ReturnType<typeof setup>;
  const ways: Record<string, (t: Run, worker: string) => void> = {
    "no answer to the offer": (t) =>
      t.tickTo(t.clock.ms + DISPATCH_LIMITS.acceptMs),
    "lost while offered": (t) => t.drive(t.run.onWorkerLost()),
    "lost while running": (t, worker) => {
      t.accept(worker);
      t.drive(t.run.onWorkerLost());
    },
  };
  for (const [firstWay, first] of Object.entries(ways)) {
    for (const [secondWay, second] of Object.entries(ways)) {
      const t = setup({ workers: ["w1", "w2", "w3"] });
      t.offer();
      first(t, "w1");
      second(t, "w2");
      assert.equal(t.outcomes[0]?.offers, 2, `${firstWay}, then ${secondWay}`);
      assert.equal(t.outcomes[0]?.kind, "failed");
    }
  }
});

Deno.test("an offer that found the bus down says nothing of its worker", () => {
  const t = setup({ workers: ["w1", "w2", "w3"], bus: "broken" });
  t.offer();
  for (const _offer of [1, 2, 3]) {
    t.tickTo(t.clock.ms + DISPATCH_LIMITS.acceptMs);
    assert.equal(t.events.at(-1), "wait");
    t.offer();
  }
  assert.equal(t.outcomes.length, 0);
});

Deno.test("an offer is not given up while the bus brings nothing at all", () => {
  const t = setup({ workers: ["w1", "w2"], bus: "silent" });
  t.offer();
  t.tickTo(4 * DISPATCH_LIMITS.acceptMs);
  assert.deepEqual(t.events, ["offer w1"]);
  t.accept();
  assert.equal(t.run.state, "running");
});

Deno.test("a late word that nobody took an earlier offer does not end the next one", () => {
  const t = setup({ workers: ["w1", "w2"] });
  t.offer();
  t.tickTo(DISPATCH_LIMITS.acceptMs);
  const before = [...t.events];
  t.drive(t.run.onNoResponders(1, false));
  assert.deepEqual(t.events, before);
  t.accept("w2");
  assert.equal(t.run.state, "running");
});

Deno.test("nobody listens at all: no worker", () => {
  const t = setup({ workers: [null] });
  t.offer();
  t.drive(t.run.onNoResponders(1, false));
  assert.deepEqual(t.events, [
    "offer anybody",
    "error no_worker",
    "over failed",
  ]);
});

Deno.test("nobody listens, but a worker was just there: wait for it", () => {
  const t = setup({ workers: [null] });
  t.offer();
  t.drive(t.run.onNoResponders(1, true));
  assert.deepEqual(t.events, ["offer anybody", "wait"]);
  assert.equal(t.run.state, "waiting");
});

Deno.test("the chosen worker is gone: the next one", () => {
  const t = setup({ workers: ["w1", "w2"] });
  t.offer();
  t.drive(t.run.onNoResponders(1, false));
  assert.deepEqual(t.events.slice(1), [
    "cancel w1 1 not_accepted",
    "left w1 gone, slot",
    "offer w2",
  ]);
});

Deno.test("a lost attempt is repeated once before the first byte", () => {
  const t = setup({ workers: ["w1", "w2", "w3"] });
  t.offer();
  t.accept();
  t.drive(t.run.onWorkerLost());
  t.accept("w2");
  t.drive(t.run.onWorkerLost());
  assert.deepEqual(t.events, [
    "offer w1",
    "accepted w1",
    "cancel w1 1 worker_lost",
    "restart",
    "left w1 ended, slot",
    "offer w2",
    "accepted w2",
    "cancel w2 2 worker_lost",
    "error worker_lost",
    "left w2 ended, slot",
    "over failed",
  ]);
});

Deno.test("a lost attempt is not repeated after the first byte", () => {
  const t = setup({ workers: ["w1", "w2"] });
  t.offer();
  t.data("a\n", 1, 7);
  t.drive(t.run.onWorkerLost());
  assert.ok(!t.events.includes("restart"));
  assert.ok(t.events.includes("error worker_lost"));
  assert.equal(t.outcomes[0]?.completionTokens, 7);
  assert.equal(t.outcomes[0]?.isHeard, false);
});

Deno.test("a worker that gave a stream up: the end of it, at once", () => {
  const t = setup({ workers: ["w1", "w2"] });
  t.offer();
  t.data("a\n", 1, 1);
  assert.equal(t.err(0, false), true);
  assert.ok(t.events.includes("error worker_lost"));
  assert.equal(t.outcomes.length, 1);
  const unseen = setup({ workers: ["w1", "w2"] });
  unseen.offer();
  unseen.accept();
  unseen.err(0, false);
  assert.equal(unseen.events.at(-1), "offer w2");
});

Deno.test("a fault of the worker is repeated elsewhere, one of the backend is not", () => {
  const ours = setup({ workers: ["w1", "w2"] });
  ours.offer();
  ours.err(1, true);
  assert.equal(ours.events.at(-1), "offer w2");
  const theirs = setup({ workers: ["w1", "w2"] });
  theirs.offer();
  theirs.err(1, false);
  assert.ok(theirs.events.includes("error upstream_error"));
  assert.equal(theirs.outcomes[0]?.kind, "failed");
});

Deno.test("a cancelled run waits for the worker's last word on its cost", () => {
  const t = setup();
  t.offer();
  t.data("a\n", 1, 3);
  t.drive(t.run.cancel("client_gone"));
  assert.deepEqual(t.events.slice(-2), [
    "abandoned",
    "cancel w1 1 client_gone",
  ]);
  assert.equal(t.outcomes.length, 0);
  t.frame(FrameType.DATA, new Uint8Array(1), { sequence: 2, tokens: 4 });
  t.frame(FrameType.ERR, new Uint8Array(0), { tokens: 5 });
  assert.deepEqual(
    t.outcomes.map((o) => [o.kind, o.completionTokens, o.isHeard]),
    [
      ["cancelled", 5, true],
    ],
  );
});

Deno.test("a cancelled run does not wait long for it", () => {
  const t = setup();
  t.offer();
  t.data("a\n", 1, 3);
  t.drive(t.run.cancel("client_gone"));
  t.tickTo(999);
  assert.equal(t.outcomes.length, 0);
  t.tickTo(1_000);
  assert.equal(t.outcomes[0]?.completionTokens, 3);
  assert.equal(t.outcomes[0]?.isHeard, false);
});

Deno.test("a cancelled run that was refused ends at once and has not run", () => {
  const t = setup();
  t.offer();
  t.drive(t.run.cancel("client_gone"));
  assert.equal(t.reject("full"), true);
  assert.partialDeepStrictEqual(t.outcomes, [
    { kind: "cancelled", dispatchMs: null },
  ]);
});

Deno.test("a run cancelled while it waits ends at once and never reaches a worker", () => {
  const t = setup({ workers: [] });
  t.offer();
  t.drive(t.run.cancel("client_gone"));
  assert.deepEqual(t.events, ["wait", "abandoned", "over cancelled"]);
  assert.equal(t.outcomes[0]?.dispatchMs, null);
});

Deno.test("a run cancelled before it is known who took it is cancelled when it is", () => {
  const t = setup({ workers: [null] });
  t.offer();
  t.drive(t.run.cancel("client_gone"));
  // Not taken by the run: the dispatcher answers it with a cancel.
  assert.equal(t.frame(FrameType.ACCEPT, encodeAccept("w9")), false);
});

Deno.test("a run that takes too long ends with an error for the client", () => {
  const t = setup();
  t.offer();
  t.accept();
  t.clock.ms = TIMEOUT_MS;
  t.drive(t.run.onTick(TIMEOUT_MS));
  assert.deepEqual(t.events.slice(-2), [
    "error deadline_exceeded",
    "cancel w1 1 deadline",
  ]);
  t.frame(FrameType.ERR, new Uint8Array(0));
  assert.equal(t.outcomes[0]?.kind, "failed");
});

Deno.test("whatever is told to a run after its end changes nothing", () => {
  const t = setup({ workers: ["w1", "w2"] });
  t.offer();
  t.data("a\n", 1);
  t.end(2);
  const before = [...t.events];
  t.drive(t.run.cancel("client_gone"));
  t.drive(t.run.onWorkerLost());
  t.drive(t.run.onNoResponders(1, false));
  t.drive(t.run.onBusGivenUp());
  t.run.delivered(1);
  t.drive(t.run.onTick(TIMEOUT_MS * 2));
  assert.equal(t.end(2), false);
  assert.deepEqual(t.events, before);
});
