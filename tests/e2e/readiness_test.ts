// Promise: a new stack is ready before the first key exists, admits no request, and
// serves the first key at once. A service that is cut off from the bus fails its
// readiness check in time, and passes it when it is back, without a restart. An edge
// that misses an order to stop the requests of a key obeys it when it is back.
import assert from "node:assert/strict";
import { mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import { startNatsServer } from "../support/servers/nats_server.ts";
import { makeTempDir } from "../support/process.ts";
import { startRedisServer } from "../support/servers/redis_server.ts";
import { outcomeOf } from "../support/gateway/chat_outcome.ts";
import { postChat } from "../support/chat_request.ts";
import { statusOf } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { makeKey, runKeys } from "../support/gateway/key_commands.ts";
import {
  type RunningService,
  startWithoutModels,
} from "../support/gateway/services.ts";
import { LONG } from "../support/gateway/simulator.ts";
import { startTcpProxy } from "../support/servers/tcp_proxy.ts";
import { waitFor } from "../support/wait_for.ts";

/**
 * Finding the loss takes 1.2 s, a dial that waited for the network 2 s; the rest is for
 * a busy machine.
 */
const TOLD_MS = 6_000;

/** What the operator's port says: the status, and what is missing. */
type Service = RunningService;

async function readiness({ ready }: Service, path = "readyz") {
  const response = await fetch(`http://127.0.0.1:${ready.opsPort}/${path}`);
  return `${response.status} ${await response.text()}`;
}

async function becomes(service: Service, form: RegExp) {
  let text = "";
  await waitFor(async () => {
    text = await readiness(service);
    return form.test(text);
  }, {
    what: () => `${form}, it says ${text}`,
    timeoutMs: TOLD_MS,
  });
}

Deno.test("a new stack", async (t) => {
  await using nats = await startNatsServer();
  await using redis = await startRedisServer();
  await using proxy = startTcpProxy(nats.port);
  const env = { NATS_URL: `nats://${proxy.server}`, REDIS_URL: redis.url };
  await using gateway = await startGateway("services", { env });
  const worker = await gateway.start("chat-worker");
  const edge = await gateway.start("edge-auth");
  const services = [edge, worker];

  await t.step("is ready without a key, and the first one works", async () => {
    assert.match(await readiness(edge), /^200/);
    assert.equal(await statusOf(edge.url, mintKey(randomBytes)), 503);
    assert.match(await readiness(edge), /^200/);
    const newKey = await makeKey(env);
    assert.equal(await statusOf(edge.url, newKey.key), 200);
    assert.equal(await statusOf(edge.url, mintKey(randomBytes)), 401);
  });

  await t.step(
    "that loses the bus: an edge is ready, for it answers, a worker is not",
    async () => {
      for (const service of services) await becomes(service, /^200/);
      proxy.set({ blackHole: "both" });
      for (const service of services) {
        const isEdge = service === edge;
        await becomes(service, isEdge ? /^200.*without: bus/s : /^503.*bus/s);
        assert.match(await readiness(service, "healthz"), /^200/);
      }
      proxy.set({});
      for (const service of services) {
        await becomes(service, /^200 ready\n/);
        assert.ok(service.process.isRunning);
      }
    },
  );

  await t.step("obeys an order to stop that it missed", async () => {
    const { id, key } = await makeKey(env);
    const answered = postChat(`${edge.url}/v1`, key, { body: LONG });
    assert.equal((await answered).status, 200);
    proxy.set({ refuse: true });
    proxy.cut();
    await becomes(edge, /^200.*without: bus/s);
    const direct = { ...env, NATS_URL: `nats://${nats.server}` };
    await runKeys(direct, "disable", id, "--stop-running");
    proxy.set({});
    const { kind, errorCode } = await outcomeOf(answered);
    assert.deepEqual([kind, errorCode], ["sse_error", "key_revoked"]);
  });
});

Deno.test("an edge without Redis is ready: callers get its 503, not errors of a load balancer", async () => {
  await using nats = await startNatsServer();
  await using redis = await startRedisServer();
  const env = { NATS_URL: `nats://${nats.server}`, REDIS_URL: redis.url };
  await using gateway = await startGateway("services", { env });
  const edge = await gateway.start("edge-auth");
  await redis[Symbol.asyncDispose]();
  await becomes(edge, /^200 ready, but without: redis/);
  assert.equal(await statusOf(edge.url, mintKey(randomBytes)), 503);
});

Deno.test("without models of their kind a media worker warns and waits, and a chat worker stops", async () => {
  await using nats = await startNatsServer();
  await using directory = await makeTempDir();
  const file = `${directory.path}/models.json`;
  const has = (kind: string) => {
    const address = { base_url: "http://127.0.0.1:9/v1", model: "m" };
    const backends = [{ type: "openai", ...address }];
    const models = [{ id: kind, kind, backends }];
    return Deno.writeTextFile(file, JSON.stringify({ models }));
  };
  const env = { NATS_URL: `nats://${nats.server}`, MODELS_FILE: file };
  await has("chat");
  await using gateway = await startGateway("services", { env });
  const media = await gateway.start("media-worker");
  assert.match(await readiness(media), /^200/);
  const warnings = media.process.output().match(/"level":"warn".*/g) ?? [];
  // A process that got no processor for a moment says that, too.
  const ofModels = warnings.filter((line) => !line.includes('"woke_up"'));
  assert.match(ofModels.join("\n"), /^.*"no_models".*$/);
  await has("speech");
  await using chat = startWithoutModels("chat-worker", env);
  assert.equal((await chat.exited).code, 78);
  assert.match(chat.output(), /none has the kind "chat"[^]*media-worker/);
});
