/**
 * Guarantee: a new stack is ready before the first key exists, so that scripts can wait
 * for it; it admits no request, and the first key works at once. A service that is cut
 * off from the bus fails its readiness check in time, and passes it again when it is
 * reconnected, without a restart.
 */
import assert from "node:assert/strict";
import { mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import { startNatsServer } from "../support/nats_server.ts";
import { startRedisServer } from "../support/redis_server.ts";
import {
  makeKey,
  type RunningServiceProcess,
  startService,
  startWithoutModels,
  statusOf,
} from "../support/service_processes.ts";
import { startTcpProxy } from "../support/tcp_proxy.ts";
import { waitFor } from "../support/wait_for.ts";

/** Finding the loss takes 1.2 s, a dial that waited for the network 2 s; the rest is for a busy machine. */
const TOLD_MS = 6_000;
/** Without it the command line warns, and what it prints is more than JSON. */
const DURABLE = ["--appendonly", "yes", "--appendfsync", "always"];

/** What the operator's port says: the status, and what is missing. */
async function readiness(
  service: RunningServiceProcess,
  path: "readyz" | "healthz" = "readyz",
): Promise<string> {
  const url = `http://127.0.0.1:${service.ready.opsPort}/${path}`;
  const response = await fetch(url);
  return `${response.status} ${await response.text()}`;
}

async function waitUntil(
  service: RunningServiceProcess,
  wanted: RegExp,
): Promise<void> {
  let said = "";
  await waitFor(async () => {
    said = await readiness(service);
    return wanted.test(said);
  }, { what: () => `${wanted}, it says ${said}`, timeoutMs: TOLD_MS });
}

Deno.test("a new stack", async (t) => {
  await using nats = await startNatsServer();
  await using redis = await startRedisServer({ args: DURABLE });
  await using proxy = startTcpProxy(nats.port);
  const env = { NATS_URL: `nats://${proxy.server}`, REDIS_URL: redis.url };
  await using worker = await startService("chat-worker", env);
  await using edge = await startService("edge-auth", env);
  const services = [edge, worker];

  await t.step("is ready without a key, and the first one works", async () => {
    assert.match(await readiness(edge), /^200/);
    assert.equal(await statusOf(edge.url, mintKey(randomBytes)), 503);
    assert.match(await readiness(edge), /^200/);
    const made = await makeKey(env);
    assert.equal(await statusOf(edge.url, made.key), 200);
    assert.equal(await statusOf(edge.url, mintKey(randomBytes)), 401);
  });

  await t.step("whose packets to the bus are lost is not ready", async () => {
    for (const service of services) await waitUntil(service, /^200/);
    proxy.set({ blackHole: "both" });
    for (const service of services) {
      await waitUntil(service, /^503.*bus/s);
      assert.match(await readiness(service, "healthz"), /^200/);
    }
    proxy.set({});
    for (const service of services) {
      await waitUntil(service, /^200/);
      assert.ok(service.process.isRunning);
    }
  });
});

for (const name of ["edge-auth", "chat-worker", "key-admin"] as const) {
  Deno.test(`${name} does not start without a model server, and says what is missing`, async () => {
    await using service = startWithoutModels(name, {
      NATS_URL: "nats://127.0.0.1:9",
      REDIS_URL: "redis://127.0.0.1:9",
    });
    assert.equal((await service.exited).code, 78);
    assert.match(service.output(), /no model server: set MODELS_FILE/);
  });
}
