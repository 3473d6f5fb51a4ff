// Promise: in whatever state the request of a client that leaves is, the connection to
// the model server is closed within 100 ms. In how many ways a client can leave is
// shown by `services/edge-auth/http/server_test.ts`.
import assert from "node:assert/strict";
import { startFakeModelServer } from "../support/fake_model_server.ts";
import { chat, startMiniCluster } from "../support/mini_cluster.ts";
import { choiceChunk, streamResponse } from "../support/model_answers.ts";
import { startStopwatch, until } from "../support/wait_for.ts";

const CANCEL_MS = 100;
/** The machine may be busy for a moment, so one of this many attempts must succeed. */
const TRIES = 3;
/** In the packet of the head, and in many after it. */
const PROMPTS = ["ping", "word ".repeat(20_000)];
const STATES = ["streaming", "before the first token", "not streaming"];

Deno.test("a client that leaves ends the call of the model server", async (t) => {
  let state = "";
  await using server = startFakeModelServer({
    reply: function* () {
      const begun = streamResponse([choiceChunk({ content: "one" })]);
      if (state === "streaming") yield* begun.slice(0, 2);
      yield { stall: true };
    },
  });
  await using cluster = await startMiniCluster();
  const { edge } = cluster;
  await cluster.addWorker(server, { slots: 1 });
  const send = (content: string) => {
    const client = new AbortController();
    const stream = state !== "not streaming";
    const body = { stream, messages: [{ role: "user", content }] };
    const answered = chat(edge, body, { signal: client.signal });
    answered.catch(() => {}); // It leaves before an answer.
    return { answered, leave: () => client.abort() };
  };
  const leaveOnce = async (prompt: string) => {
    const number = server.requests.length + 1;
    const client = send(prompt);
    const request = await server.request(number);
    if (state === "streaming") await client.answered;
    using watch = startStopwatch();
    client.leave();
    await request.left;
    return watch.ms;
  };

  for (state of STATES) {
    await t.step(state, async () => {
      for (const prompt of PROMPTS) {
        const tookMs: number[] = [];
        do tookMs.push(await leaveOnce(prompt)); while (
          Math.min(...tookMs) >= CANCEL_MS && tookMs.length < TRIES
        );
        assert.ok(Math.min(...tookMs) < CANCEL_MS, `left after ${tookMs} ms`);
        await cluster.idle();
      }
    });
  }

  await t.step("queued, behind one that holds the only slot", async () => {
    const calls = server.requests.length;
    assert.equal(edge.settlements().length, calls);
    const holder = send("ping");
    await server.request(calls + 1);
    for (const prompt of PROMPTS) {
      const queued = send(prompt);
      await until(() => edge.dispatcher.queue.length === 1);
      queued.leave();
      await until(() => edge.dispatcher.queue.length === 0);
    }
    holder.leave();
    await cluster.idle();
    assert.equal(server.requests.length, calls + 1);
    assert.equal(edge.settlements().length, calls + PROMPTS.length + 1);
  });
});
