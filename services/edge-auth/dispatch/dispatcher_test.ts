/**
 * Guarantee: requests reach workers in the order in which they came, as soon as
 * there is room, and what is late for one offer does not touch the next.
 */
import assert from "node:assert/strict";
import { BEAT_VERSION, encodeWorkerBeat } from "@gateway/shared/bus/job";
import { encodeFrame, FrameType } from "@gateway/shared/bus/frame";
import {
  encodeAccept,
  encodeEnd,
  encodeRejectFrame,
} from "@gateway/shared/bus/frame";
import {
  chatJobSubject,
  edgeStreamSubject,
  workerBeatSubject,
} from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { silentLog } from "@gateway/shared/process/log";
import { ChatDispatcher, DISPATCH_TICK_MS } from "./dispatcher.ts";
import type { RunOutcome } from "./run.ts";

const EDGE = "e1";
const idOf = (number: number) => number.toString(16).padStart(32, "0");

/** A dispatcher whose bus and clock the test holds. */
function setup() {
  const clock = { ms: 0 };
  const now = () => clock.ms;
  /** Jobs in the order they went out: worker, request, attempt. */
  const offers: string[] = [];
  const ended = new Map<number, RunOutcome>();
  const soon: (() => void)[] = [];
  const bus: { flowingSinceMs: number | null } = { flowingSinceMs: 0 };
  const dispatcher = new ChatDispatcher({
    bus: {
      isConnected: true,
      get flowingSinceMs() {
        return bus.flowingSinceMs;
      },
      get heardAtMs() {
        return clock.ms;
      },
      publish: (subject, _payload, options) => {
        const [requestId = "", attempt] =
          options?.reply?.split(".").slice(-2) ??
            [];
        if (attempt === undefined) return;
        const worker = subject.slice(chatJobSubject("").length);
        offers.push(`${worker} ${Number.parseInt(requestId, 16)}.${attempt}`);
      },
      request: () => new Promise(() => {}),
    },
    edgeId: EDGE,
    now,
    random: () => 0,
    schedule: (flush) => void soon.push(flush),
    scheduleSoon: () => {},
    log: silentLog,
    queueMax: 100,
    requestTimeoutMs: 60_000,
  });
  const frame = (number: number, bytes: Uint8Array) =>
    dispatcher.onStreamMessage(
      edgeStreamSubject(EDGE, idOf(number), 1),
      bytes,
      false,
    );
  return {
    clock,
    bus,
    offers,
    ended,
    dispatcher,
    /** `free` slots of one. */
    beat: (worker: string, free = 1) =>
      dispatcher.liveness.onBeatMessage(
        workerBeatSubject(worker),
        encodeWorkerBeat({
          version: BEAT_VERSION,
          slots: 1,
          inFlight: 1 - free,
          draining: false,
          models: ["m"],
        }),
      ),
    ask: (number: number) =>
      dispatcher.start(
        {
          requestId: idOf(number),
          request: {
            model: "m",
            messages: [{ role: "user", content: "x" }],
            stream: true,
            include_usage: false,
            n: 1,
          },
        },
        {
          hasStarted: false,
          onPayload: () => {},
          onEnd: () => {},
          onError: () => {},
          onAbandoned: () => {},
          onRestart: () => {},
          onTick: () => {},
        },
        (outcome) => void ended.set(number, outcome),
      ),
    accept: (number: number, worker: string) =>
      frame(
        number,
        encodeFrame(
          { type: FrameType.ACCEPT, sequence: 0, attempt: 1, tokens: 0 },
          encodeAccept(worker),
        ),
      ),
    refuse: (number: number, worker: string, retryAfterMs: number) =>
      frame(
        number,
        encodeRejectFrame(1, { worker, reason: "full", retryAfterMs }),
      ),
    end: (number: number, worker: string) => {
      frame(
        number,
        encodeFrame(
          { type: FrameType.END, sequence: 1, attempt: 1, tokens: 1 },
          encodeEnd(worker, { usage: null, finishReasons: ["stop"] }),
        ),
      );
      for (const flush of soon.splice(0)) flush();
    },
    nobodyTook: (number: number, attempt: number) =>
      dispatcher.onStreamMessage(
        edgeStreamSubject(EDGE, idOf(number), attempt),
        new Uint8Array(),
        true,
      ),
    tickTo: (ms: number) => {
      while (clock.ms < ms) {
        clock.ms = Math.min(ms, clock.ms + DISPATCH_TICK_MS);
        dispatcher.tick();
      }
    },
  };
}

Deno.test("a waiting request is offered when the pause of a full worker ends, without a beat", () => {
  const t = setup();
  t.beat("w1");
  t.ask(1);
  t.refuse(1, "w1", 100);
  assert.deepEqual(t.offers, ["w1 1.1"]);
  t.tickTo(99);
  assert.equal(t.offers.length, 1);
  t.tickTo(100);
  assert.deepEqual(t.offers, ["w1 1.1", "w1 1.2"]);
});

Deno.test("a newcomer does not overtake a request that waits", () => {
  const t = setup();
  t.beat("w1", 0);
  t.ask(1);
  t.ask(2);
  t.clock.ms = 10;
  // The worker has room again before anybody has looked at the queue.
  t.dispatcher.workers.onEnded("w1");
  t.ask(3);
  assert.deepEqual(t.offers, []);
  t.beat("w1");
  assert.deepEqual(t.offers, ["w1 1.1"]);
  for (const [over, next] of [[1, 2], [2, 3]] as const) {
    t.accept(over, "w1");
    t.end(over, "w1");
    assert.equal(t.offers.at(-1), `w1 ${next}.1`);
  }
});

Deno.test("a refused request goes back before those that came after it", () => {
  const t = setup();
  t.beat("w1");
  t.ask(1);
  t.clock.ms = 10;
  t.ask(2);
  t.refuse(1, "w1", 100);
  t.tickTo(200);
  assert.deepEqual(t.offers.slice(0, 2), ["w1 1.1", "w1 1.2"]);
});

Deno.test("a late word that nobody took the first offer does not end the second", () => {
  const t = setup();
  t.beat("w1");
  t.beat("w2");
  t.ask(1);
  t.clock.ms = 100;
  t.beat("w2");
  t.tickTo(DISPATCH_LIMITS.acceptMs);
  assert.deepEqual(t.offers, ["w1 1.1", "w2 1.2"]);
  t.nobodyTook(1, 1);
  assert.equal(t.dispatcher.waiting, 0);
  t.nobodyTook(1, 2);
  assert.equal(t.ended.size, 0);
  assert.equal(t.dispatcher.waiting, 1);
});

Deno.test("no worker is lost while the bus does not flow, and its silence begins anew after", () => {
  const t = setup();
  const { workerLostMs } = DISPATCH_LIMITS;
  t.beat("w1");
  t.ask(1);
  t.accept(1, "w1");
  t.tickTo(100);
  t.bus.flowingSinceMs = null;
  t.tickTo(3 * workerLostMs);
  t.bus.flowingSinceMs = 3 * workerLostMs;
  t.tickTo(4 * workerLostMs - 100);
  assert.deepEqual(t.offers, ["w1 1.1"]);
  t.tickTo(4 * workerLostMs + 200);
  assert.equal(t.offers.length, 2, "lost, and repeated");
});

Deno.test("runs end when the bus is away for too long", () => {
  const t = setup();
  t.beat("w1");
  t.ask(1);
  t.accept(1, "w1");
  t.tickTo(100);
  t.bus.flowingSinceMs = null;
  t.tickTo(100 + DISPATCH_LIMITS.busLostMs);
  assert.equal(t.ended.size, 0);
  t.tickTo(200 + DISPATCH_LIMITS.busLostMs);
  assert.equal(t.ended.get(1)?.error?.code, "bus_unavailable");
});
