import assert from "node:assert/strict";
import type { BackendCall } from "./backends/backend.ts";
import { Job } from "./job.ts";

Deno.test("a job gives the model server a request id that is a UUID", async () => {
  const calls: BackendCall[] = [];
  const job = new Job({
    requestId: "0123456789abcdef0123456789abcdef",
    edgeId: "e1",
    workerId: "w1",
    attempt: 1,
    deadlineAtMs: 60_000,
    traceparent: undefined,
  }, {
    now: () => 0,
    steadyNow: () => 0,
    wallNow: () => 0,
    sendFrame: () => {},
    onFault: (error) => assert.fail(String(error)),
    onWhole: () => {},
    onSlotFree: () => {},
    onFinished: () => {},
  });
  await job.run({
    model: "m",
    messages: [{ role: "user", content: "hi" }],
    stream: true,
    include_usage: false,
    n: 1,
  }, {
    async *complete(_request, call) {
      calls.push(call);
      yield await Promise.resolve([]);
    },
  });
  const uuid = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/;
  assert.match(calls[0]?.requestId ?? "", uuid);
});
