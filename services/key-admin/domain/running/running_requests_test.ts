/** Asking edges and workers what runs: who is waited for, and who is missed. */
import assert from "node:assert/strict";
import type { BusHandler } from "@gateway/shared/bus/link";
import {
  decodeRunningQuestion,
  encodeRunningAnswer,
  type RunningAnswer,
  type RunningRequest,
} from "@gateway/shared/bus/running";
import { subjects } from "@gateway/shared/bus/subjects";
import { RunningRequests } from "./running_requests.ts";

const ID = "a".repeat(32);
const RUN: RunningRequest = {
  requestId: ID,
  keyId: "key_1",
  account: "own_1",
  kind: "chat",
  model: "m",
  workerId: "w1",
  state: "running",
  ageMs: 5,
  tokens: 0,
};

type AnswerPart = Partial<RunningAnswer & { from: "edge" }> | {
  backends: Record<string, string>;
};

const answerOf = (ask: string, tells: AnswerPart): RunningAnswer =>
  "backends" in tells ? { from: "worker", ask, ...tells } : {
    from: "edge",
    ask,
    runs: [],
    total: 0,
    hasStopped: false,
    ...tells,
  };

/** A bus on which these instances answer, each after its `afterMs`. */
function scripted(
  instances: Record<string, { afterMs: number; tells: AnswerPart }>,
) {
  const clock = { ms: 0 };
  const due: { atMs: number; tell: () => void }[] = [];
  let onAnswer: BusHandler = () => assert.fail("nobody listens");
  let isConnected = true;
  const running = new RunningRequests({
    now: () => clock.ms,
    newId: () => `q${clock.ms}`,
    pause: (ms) => {
      clock.ms += ms;
      const now = due.filter(({ atMs }) => atMs <= clock.ms);
      for (const each of now) {
        due.splice(due.indexOf(each), 1);
        each.tell();
      }
      return Promise.resolve();
    },
    bus: {
      get isConnected() {
        return isConnected;
      },
      subscribe(subject, handler) {
        assert.equal(subject, subjects.allRunning);
        onAnswer = handler;
        return { drain: () => Promise.resolve() };
      },
      publish(subject, payload) {
        assert.equal(subject, subjects.runningWanted);
        const { ask } = decodeRunningQuestion(payload) ?? assert.fail();
        for (const [id, { afterMs, tells }] of Object.entries(instances)) {
          const data = encodeRunningAnswer(answerOf(ask, tells));
          due.push({
            atMs: clock.ms + afterMs,
            tell: () => onAnswer({ subject: subjects.running(id), data }),
          });
        }
      },
    },
  });
  return {
    running,
    clock,
    instances,
    disconnect() {
      isConnected = false;
    },
    /** How long the call took, in ms, and what it gave. */
    async timed<T>(call: () => Promise<T>): Promise<[number, T]> {
      const startedAtMs = clock.ms;
      const result = await call();
      return [clock.ms - startedAtMs, result];
    },
  };
}

Deno.test("known edges and the workers are waited for, and whoever is silent is told", async () => {
  const older = { ...RUN, requestId: "b".repeat(32), ageMs: 90 };
  const bus = scripted({
    e1: { afterMs: 20, tells: { runs: [RUN], total: 1 } },
    e2: { afterMs: 300, tells: { runs: [older], total: 5 } },
    w1: { afterMs: 30, tells: { backends: { [ID]: "gpu-1" } } },
  });
  // Nobody is known yet.
  const [firstMs, first] = await bus.timed(() => bus.running.list(null));
  assert.equal(firstMs, 600);
  assert.deepEqual(first, {
    requests: [{ ...older, backend: "" }, { ...RUN, backend: "gpu-1" }],
    edges: 2,
    silentEdges: 0,
    more: 4,
  });
  const [knownMs] = await bus.timed(() => bus.running.list(null));
  assert.equal(knownMs, 300, "as long as the slowest");
  delete bus.instances.e2;
  const [waitedMs, without] = await bus.timed(() => bus.running.list(null));
  assert.equal(waitedMs, 1_500);
  assert.equal(without?.silentEdges, 1);
  const [goneMs, after] = await bus.timed(() => bus.running.list(null));
  assert.equal(goneMs, 150);
  assert.equal(after?.silentEdges, 0);
  bus.disconnect();
  assert.equal(await bus.running.list(null), null);
  assert.equal(await bus.running.stop(RUN), "unreachable");
});

Deno.test("a stop is over when an edge confirms it, and otherwise when all have answered", async () => {
  const bus = scripted({
    e1: { afterMs: 5, tells: {} },
    e2: { afterMs: 40, tells: { hasStopped: true } },
  });
  assert.deepEqual(await bus.timed(() => bus.running.stop(RUN)), [
    40,
    "stopped",
  ]);
  bus.instances.e2 = { afterMs: 40, tells: {} };
  assert.deepEqual(await bus.timed(() => bus.running.stop(RUN)), [
    150,
    "ended",
  ]);
  for (const id of ["e1", "e2"]) delete bus.instances[id];
  const [, result] = await bus.timed(() => bus.running.stop(RUN));
  assert.equal(result, "unreachable");
});
