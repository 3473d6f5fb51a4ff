import assert from "node:assert/strict";
import type { BackendCall } from "./backends/backend.ts";
import { runJob } from "./run_job.ts";

Deno.test("runJob() gives the model server a request id that is a UUID", async () => {
  const calls: BackendCall[] = [];
  await runJob({
    requestId: "0123456789abcdef0123456789abcdef",
    request: {
      model: "m",
      messages: [{ role: "user", content: "hi" }],
      stream: true,
      include_usage: false,
      n: 1,
    },
    signal: new AbortController().signal,
  }, {
    write: () => {},
    room: () => null,
    end: () => {},
    fail: () => {},
  }, {
    backend: {
      name: "fake",
      fingerprint: null,
      async *complete(_request, call) {
        calls.push(call);
        yield await Promise.resolve([]);
      },
    },
    wallNow: () => 0,
    onFault: (error) => assert.fail(String(error)),
  });
  const uuid = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/;
  assert.match(calls[0]?.requestId ?? "", uuid);
});
