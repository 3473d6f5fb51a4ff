// Promise: a worker that has no memory for a request says so after a second. The edge
// tries another worker, and answers 503 with Retry-After only if there is none.
import assert from "node:assert/strict";
import { begin } from "../support/gateway/chat_outcome.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { chat } from "../support/gateway/open.ts";
import {
  hello,
  scriptedModelServer,
} from "../support/model_servers/scripted_model_server.ts";
import { createRecordingLog } from "../support/recording_log.ts";
import { until } from "../support/wait_for.ts";

const MIB = 1024 * 1024;
const ATTEMPTS_MAX = 5;
const LARGE = {
  stream: true,
  messages: [{ role: "user", content: "a".repeat(3 * MIB) }],
};

Deno.test("API4: a request beyond a worker's memory gets another worker, then 503 with Retry-After", async () => {
  const log = createRecordingLog();
  await using gateway = await startGateway("open", { log });
  const { edge } = gateway;
  const roomy = scriptedModelServer();
  const large = await gateway.addWorker(roomy, { slots: 2 });
  // With a job it comes second to a worker without one.
  await begin(edge, roomy);
  const small = await gateway.addWorker(scriptedModelServer(hello), {
    heldBytesMax: MIB,
  });
  await until(() => edge.dispatcher.workers.totals().workers === 2);
  const isRepeated = () =>
    log.lines.some(({ event, fields }) =>
      event === "attempt_repeated" && fields.workerId === small.id
    );
  // On a busy machine, the small one may be silent for a moment: it gets no offer then.
  for (let left = ATTEMPTS_MAX; left > 0 && !isRepeated(); left -= 1) {
    const before = roomy.calls.length;
    const served = chat(edge, LARGE);
    await until(() => roomy.calls.length > before);
    hello(roomy.calls[before] ?? assert.fail("no call"));
    assert.match(await (await served).text(), /Hello.*\[DONE\]/s);
  }
  assert.ok(isRepeated());
  await large.kill();
  const refused = await chat(edge, LARGE);
  assert.equal(refused.status, 503);
  assert.equal((await refused.json()).error.code, "overloaded");
  assert.equal(refused.headers.get("retry-after"), "1");
});

Deno.test("API4: an account whose requests hold its share of a worker's memory leaves room for another", async () => {
  await using gateway = await startGateway("open");
  const { edge } = gateway;
  // Another account: each edge of this gateway admits all keys as those of one.
  const theirs = await gateway.addEdge({
    door: {
      keys: {
        find: () => Promise.resolve({ keyId: "key_b", ownerId: "own_b" }),
      },
    },
  });
  const server = scriptedModelServer();
  // Two such requests fit, with their copies. They are more than two thirds.
  await gateway.addWorker(server, { heldBytesMax: 2 * 8 * 3.2 * MIB });
  for (const { dispatcher } of [edge, theirs]) {
    await until(() => dispatcher.workers.totals().workers === 1);
  }
  const first = chat(edge, LARGE);
  await until(() => server.calls.length === 1);
  const second = await chat(edge, LARGE);
  assert.equal(second.status, 503);
  assert.equal((await second.json()).error.code, "overloaded");
  assert.equal(second.headers.get("retry-after"), "1");
  const other = chat(theirs, LARGE);
  await until(() => server.calls.length === 2);
  server.calls.forEach(hello);
  for (const each of [first, other]) {
    assert.match(await (await each).text(), /Hello.*\[DONE\]/s);
  }
});
