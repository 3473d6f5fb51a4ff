// Promise: a new stack is ready before the first key exists, so that scripts can wait
// for it; it admits no request, and the first key works at once.
import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { mintKey } from "@gateway/shared/keys/key";
import { startNatsServer } from "../support/nats_server.ts";
import { startRedisServer } from "../support/redis_server.ts";
import {
  runKeys,
  sendChat,
  startService,
} from "../support/service_processes.ts";

/** Without it the command line warns, and what it prints is more than JSON. */
const DURABLE = ["--appendonly", "yes", "--appendfsync", "always"];

Deno.test("a stack without a key", async () => {
  await using nats = await startNatsServer();
  await using redis = await startRedisServer({ args: DURABLE });
  const bus = { NATS_URL: `nats://${nats.server}` };
  const env = { ...bus, REDIS_URL: redis.url };
  await using _worker = await startService("chat-worker", bus);
  await using edge = await startService("edge-auth", env);
  const readiness = async () => {
    const response = await fetch(
      `http://127.0.0.1:${edge.ready.opsPort}/readyz`,
    );
    await response.body?.cancel();
    return response.status;
  };
  const chat = async (key: string) => {
    const response = await sendChat(edge.url, key, "hello");
    await response.body?.cancel();
    return response.status;
  };
  assert.equal(await readiness(), 200);
  assert.equal(await chat(mintKey(randomBytes)), 503);
  assert.equal(await readiness(), 200);
  const made = JSON.parse(
    await runKeys(env, "create", "--description", "first"),
  );
  assert.equal(await chat(made.key), 200);
  assert.equal(await chat(mintKey(randomBytes)), 401);
});
