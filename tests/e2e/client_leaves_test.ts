// Promise: in whatever state the request of a client that leaves is, the connection to
// the model server is closed within 100 ms. In how many ways a client can leave is
// shown by `services/edge-auth/http/server_test.ts`.
import assert from "node:assert/strict";
import { startGateway } from "../support/gateway/gateway.ts";
import { chat } from "../support/gateway/open.ts";
import { startSimulator } from "../support/gateway/simulator.ts";
import { startStopwatch, until } from "../support/wait_for.ts";

const CANCEL_MS = 100;
/** The machine may be busy for a moment, so one of this many attempts must succeed. */
const TRIES = 3;
/** In the packet of the head, and in many after it. */
const PROMPTS = ["ping", "word ".repeat(20_000)];
/** What the simulator does, and whether the client has something by then. */
const STATES = [
  { state: "streaming", controls: "stall after 1 token", isBegun: true },
  { state: "before the first token", controls: "first token 60000 ms" },
  { state: "not streaming", controls: "stall after 1 token", stream: false },
];

Deno.test("a client that leaves ends the call of the model server", async (t) => {
  await using server = startSimulator();
  await using gateway = await startGateway("open");
  const { edge } = gateway;
  await gateway.addWorker({ baseUrl: server.url }, { slots: 1 });
  const send = (content: string, stream = true) => {
    const client = new AbortController();
    const body = { stream, messages: [{ role: "user", content }] };
    const answered = chat(edge, body, { signal: client.signal });
    answered.catch(() => {}); // It leaves before an answer.
    return { answered, leave: () => client.abort() };
  };

  for (const { state, controls, stream = true, isBegun } of STATES) {
    const leaveOnce = async (prompt: string) => {
      const number = server.requests.length + 1;
      const client = send(`${prompt} [simulator: ${controls}]`, stream);
      const request = await server.request(number);
      if (isBegun) await client.answered;
      using watch = startStopwatch();
      client.leave();
      assert.equal(await request.outcome, "left");
      return watch.ms;
    };
    await t.step(state, async () => {
      for (const prompt of PROMPTS) {
        const tookMs: number[] = [];
        do tookMs.push(await leaveOnce(prompt)); while (
          Math.min(...tookMs) >= CANCEL_MS && tookMs.length < TRIES
        );
        assert.ok(Math.min(...tookMs) < CANCEL_MS, `left after ${tookMs} ms`);
        await gateway.idle();
      }
    });
  }

  await t.step("queued, behind one that holds the only slot", async () => {
    const calls = server.requests.length;
    assert.equal(edge.settlements().length, calls);
    const holder = send("[simulator: stall after 1 token]");
    await server.request(calls + 1);
    for (const prompt of PROMPTS) {
      const queued = send(prompt);
      await until(() => edge.dispatcher.queue.length === 1);
      queued.leave();
      await until(() => edge.dispatcher.queue.length === 0);
    }
    holder.leave();
    await gateway.idle();
    assert.equal(server.requests.length, calls + 1);
    assert.equal(edge.settlements().length, calls + PROMPTS.length + 1);
  });
});
