/** What an edge tells of its running requests, and stopping one of them. */
import assert from "node:assert/strict";
import {
  decodeRunningAnswer,
  encodeRunningQuestion,
  type RunningAnswer,
  type RunningQuestion,
} from "@gateway/shared/bus/running";
import { subjects } from "@gateway/shared/bus/subjects";
import type { BusHandler } from "@gateway/shared/bus/link";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import { Stage } from "./dispatcher_fixture.ts";
import { tellRunning } from "./running.ts";

const idOf = (number: number) => number.toString(16).padStart(32, "0");

/** Lets an edge answer questions about the runs of a stage. */
function startAnswering({ dispatcher }: Stage) {
  const log = createRecordingLog();
  const answers: RunningAnswer[] = [];
  let ask: BusHandler = () => assert.fail("nobody listens");
  tellRunning({
    edgeId: "e1",
    dispatcher,
    log,
    bus: {
      isConnected: true,
      publish(subject, payload) {
        assert.equal(subject, subjects.running("e1"));
        answers.push(decodeRunningAnswer(payload) ?? assert.fail());
      },
      subscribe(subject, handler) {
        assert.equal(subject, subjects.runningWanted);
        ask = handler;
        return { drain: () => Promise.resolve() };
      },
    },
  });
  const say = (data: Uint8Array) => ask({ subject: "", data });
  return {
    log,
    say,
    ask(question: RunningQuestion): RunningAnswer & { from: "edge" } {
      say(encodeRunningQuestion(question));
      const answer = answers.pop();
      assert(answer?.from === "edge");
      assert.equal(answer.ask, "q1");
      return answer;
    },
    answers,
  };
}

const list = (account: string | null) =>
  ({ what: "list", ask: "q1", account }) as const;

Deno.test("an edge tells its requests with their states, of an account or of all", () => {
  const stage = new Stage();
  const edge = startAnswering(stage);
  assert.deepEqual(edge.ask(list(null)), {
    from: "edge",
    ask: "q1",
    total: 0,
    runs: [],
    hasStopped: false,
  });
  for (const worker of ["w1", "w2"]) stage.beat(worker);
  for (const request of [1, 2, 3]) stage.ask(request);
  stage.accept("w1", { request: 1 });
  stage.accept("w2", { request: 2 });
  stage.data("Hello", 1, { request: 2, tokens: 7 });
  stage.clock.ms = 1_200;
  const { runs, total } = edge.ask(list(null));
  assert.equal(total, 3);
  const common = { kind: "chat", model: "m", ageMs: 1_200 };
  const own = (n: number) => ({
    ...common,
    requestId: idOf(n),
    keyId: `key_${n}`,
    account: `own_${n}`,
  });
  assert.deepEqual(runs, [
    { ...own(1), workerId: "w1", state: "running", tokens: 0 },
    { ...own(2), workerId: "w2", state: "streaming", tokens: 7 },
    { ...own(3), workerId: null, state: "waiting", tokens: 0 },
  ]);
  assert.deepEqual(edge.ask(list("own_2")).runs, [runs[1]]);
  assert.deepEqual(edge.ask(list("own_9")).runs, []);
  edge.say(new TextEncoder().encode('{"what":"everything"}'));
  assert.deepEqual(edge.answers, [], "an unknown question has no answer");
});

Deno.test("API1: a request is stopped in any state, but only in the name of its account", async () => {
  const stage = await Stage.running("w1");
  const edge = startAnswering(stage);
  stage.ask(2); // Waits: the only worker is full.
  await stage.take();
  const stop = (request: number, account: string) =>
    edge.ask({
      what: "stop",
      ask: "q1",
      account,
      requestId: idOf(request),
    }).hasStopped;
  assert.equal(stop(1, "own_2"), false);
  assert.equal(stop(7, "own_1"), false);
  assert.deepEqual(await stage.take(), []);
  assert.equal(stop(1, "own_1"), true);
  assert.deepEqual(await stage.take(), [
    "error request_stopped 1",
    "cancel w1 1.1 request_stopped",
  ]);
  assert.equal(stop(2, "own_2"), true);
  assert.deepEqual(await stage.take(), [
    "error request_stopped 2",
    "over failed 2",
  ]);
  assert.equal(stop(2, "own_2"), false, "it has ended");
  const [line] = edge.log.lines;
  const fields = { ownerId: "own_1", requestId: `req_${idOf(1)}` };
  assert.deepEqual(line?.fields, fields);
});
