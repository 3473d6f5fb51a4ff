// Promise: an edge that is asked to stop loses no request of a proxy that checks its
// ready port first, however many there are and however large, on new connections and
// on kept ones.
import assert from "node:assert/strict";
import { startNatsServer } from "../support/servers/nats_server.ts";
import { startRedisServer } from "../support/servers/redis_server.ts";
import { sendChat } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { makeKey } from "../support/gateway/key_commands.ts";
import { until, waitFor } from "../support/wait_for.ts";

const CLIENTS = 8;
/** Longer than a client on a busy machine needs from its check to its request. */
const LEAD_SECONDS = 3;
/** Answers that a client repeats, and that say nothing about a departure. */
const BUSY = /"(overloaded|service_unavailable)"/;
/** A body of many packets, which is still being sent when the edge begins to stop. */
const LARGE = "word ".repeat(100_000);

/** As the proxy does: the edge accepts requests if it accepts a connection. */
async function acceptsRequests(port: number): Promise<boolean> {
  try {
    const response = await fetch(`http://127.0.0.1:${port}/`);
    await response.body?.cancel();
    return response.status === 204;
  } catch {
    return false; // Refused, or closed during the check.
  }
}

Deno.test("an edge that is asked to stop loses no request after a positive check", async () => {
  await using nats = await startNatsServer();
  await using redis = await startRedisServer();
  const env = {
    NATS_URL: `nats://${nats.server}`,
    REDIS_URL: redis.url,
    SIMULATOR_TOKENS_PER_SECOND: "400",
  };
  await using gateway = await startGateway("services", { env });
  await gateway.start("chat-worker");
  const edge = await gateway.start("edge-auth", {
    ...env,
    READY_PORT: "0",
    DRAIN_LEAD_SECONDS: String(LEAD_SECONDS),
  });
  const { key } = await makeKey(env);
  const readyPort = Number(edge.ready.readyPort);

  let complete = 0;
  let completeLate = 0;
  let isTold = false;
  const failures: string[] = [];
  const clients = Array.from({ length: CLIENTS }, async (_, index) => {
    const content = index % 2 === 0 ? "hello" : LARGE;
    // Half of them keep their connection.
    const poolMaxIdlePerHost = index % 4 < 2 ? 1 : 0;
    using client = Deno.createHttpClient({ poolMaxIdlePerHost });
    while (await acceptsRequests(readyPort)) {
      try {
        const answer = await sendChat(edge.url, key, { content, client });
        const text = await answer.text();
        // Where others take the processor, the worker and Redis may be late.
        if (answer.status === 503 && BUSY.test(text)) continue;
        if (answer.status !== 200) failures.push(text);
        complete += 1;
        if (isTold) completeLate += 1;
      } catch (error) {
        failures.push(String(error));
      }
    }
  });
  await waitFor(() => complete >= CLIENTS, {
    what: () => `answers: ${failures}`,
  });
  edge.process.signal("SIGTERM");
  isTold = true;
  await until(async () => !(await acceptsRequests(readyPort)));
  const announced = await sendChat(edge.url, key);
  assert.equal(announced.status, 200, await announced.text());
  await Promise.all(clients);
  const { code } = await edge.process.exited;

  assert.deepEqual(failures, []);
  assert.equal(code, 0, edge.process.output());
  assert.ok(completeLate > 0, "nothing ran when the edge was asked to stop");
});
