/**
 * Promise: a request that waits costs at most 2 kB, beside its body, also where each is
 * of an account of its own.
 */
import assert from "node:assert/strict";
import v8 from "node:v8";
import vm from "node:vm";
import { encodeWorkerBeat } from "@gateway/shared/bus/job";
import { subjects } from "@gateway/shared/bus/subjects";
import type { QueueTerms } from "@gateway/shared/models/queue";
import { silentLog } from "@gateway/shared/process/log";
import { until } from "../../../../tests/support/wait_for.ts";
import { print } from "../../../../tests/support/process.ts";
import { Dispatcher } from "../dispatcher.ts";
import { Stage } from "../dispatcher_fixture.ts";
import type { AnswerSink, StartedRun } from "../outcome.ts";
import { WholeBody } from "../request_body.ts";

const COUNT = 10_000;
const BYTES_MAX = 2_000;
/** The bytes of each that may be left: together, as many as a few requests leave. */
const LEFT_BYTES_MAX = 50;
/** As in the list of models: one object for all requests. */
const TERMS: QueueTerms = {
  waitMs: 3_600_000,
  requestsMax: 2 * COUNT,
  tokensMax: Infinity,
};
const SINK: AnswerSink = {
  hasStarted: false,
  onPayload() {},
  onEnd() {},
  onError() {},
  onAbandoned() {},
  onRestart() {},
  onTick() {},
};

function usedBytes(): number {
  v8.setFlagsFromString("--expose-gc");
  vm.runInNewContext("gc")();
  return Deno.memoryUsage().heapUsed;
}

/** An edge whose only worker is busy. */
function busyEdge(): Dispatcher {
  const stage = new Stage();
  // Clocks show fractions, which cost more than whole numbers.
  stage.clock.ms = 1_234_567.875;
  const dispatcher = new Dispatcher({
    bus: stage.bus,
    edgeId: "e1",
    now: () => stage.clock.ms,
    random: () => 0,
    scheduleSoon: () => {},
    log: silentLog,
    requestTimeoutMs: 3_600_000,
    queueOf: () => TERMS,
  });
  const beat = encodeWorkerBeat({
    family: "chat",
    models: ["m"],
    draining: false,
    slots: 1,
    inFlight: 1,
  });
  dispatcher.onBeatMessage(subjects.workerBeat("w1"), beat);
  return dispatcher;
}

for (
  const { name, accounts } of [
    { name: "one account", accounts: 1 },
    { name: "100 accounts", accounts: 100 },
    { name: "as many accounts", accounts: COUNT },
  ]
) {
  Deno.test(`10,000 requests of ${name} wait in at most ${BYTES_MAX} bytes each, and leave nothing`, async () => {
    const dispatcher = busyEdge();
    const runs: StartedRun[] = [];
    const ask = (at: number) =>
      runs.push(dispatcher.start(
        {
          requestId: at.toString(16).padStart(32, "0"),
          keyId: `key_${at % accounts}`,
          account: `own_${at % accounts}`,
          kind: "chat",
          model: "m",
          tokens: 100,
          body: new WholeBody(new Uint8Array(1)),
        },
        SINK,
        () => {},
      ));
    const leave = () => {
      for (const run of runs.splice(0)) run.cancel("client_gone");
    };
    // What is compiled and grown once does not count.
    for (let at = 0; at < COUNT; at += 1) ask(at);
    leave();
    const before = usedBytes();
    for (let at = 0; at < COUNT; at += 1) ask(at);
    assert.equal(dispatcher.queue.length, COUNT);
    const each = (usedBytes() - before) / COUNT;
    leave();
    assert.equal(dispatcher.queue.length, 0);
    await until(() => dispatcher.running === 0);
    const left = (usedBytes() - before) / COUNT;
    print(`${name}: ${Math.round(each)} bytes each, ${Math.round(left)} left`);
    assert.ok(each <= BYTES_MAX, `${each} bytes each`);
    assert.ok(left <= LEFT_BYTES_MAX, `${left} bytes are left of each`);
  });
}
