/**
 * Guarantee: a service that is cut off from the bus fails its readiness check in time,
 * and passes it again when it is reconnected, without a restart.
 */
import assert from "node:assert/strict";
import { startNatsServer } from "../support/nats_server.ts";
import { startRedisServer } from "../support/redis_server.ts";
import {
  type RunningServiceProcess,
  startService,
  startWithoutModels,
} from "../support/service_processes.ts";
import { startTcpProxy } from "../support/tcp_proxy.ts";
import { waitFor } from "../support/wait_for.ts";

/** Finding the loss takes 1.2 s, a dial that waited for the network 2 s; the rest is for a busy machine. */
const TOLD_MS = 6_000;

/** What the operator's port says: the status, and what is missing. */
async function readiness(
  service: RunningServiceProcess,
  path: "readyz" | "healthz",
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
    said = await readiness(service, "readyz");
    return wanted.test(said);
  }, { what: () => `${wanted}, it says ${said}`, timeoutMs: TOLD_MS });
}

for (const name of ["edge-auth", "chat-worker"] as const) {
  Deno.test(`${name} behind a network that swallows its packets to the bus is not ready, and ready again after`, async () => {
    await using nats = await startNatsServer();
    await using redis = await startRedisServer();
    await using proxy = startTcpProxy(nats.port);
    await using service = await startService(name, {
      NATS_URL: `nats://${proxy.server}`,
      REDIS_URL: `redis://127.0.0.1:${redis.port}`,
    });
    await waitUntil(service, /^200/);
    proxy.set({ blackHole: "both" });
    await waitUntil(service, /^503.*bus/s);
    assert.match(await readiness(service, "healthz"), /^200/);
    proxy.set({});
    await waitUntil(service, /^200/);
    assert.ok(service.process.isRunning);
  });
}

for (const name of ["edge-auth", "chat-worker"] as const) {
  Deno.test(`${name} does not start without a model server, and says what is missing`, async () => {
    await using service = startWithoutModels(name, {
      NATS_URL: "nats://127.0.0.1:9",
      REDIS_URL: "redis://127.0.0.1:9",
    });
    assert.equal((await service.exited).code, 78);
    assert.match(service.output(), /no model server: set MODELS_FILE/);
  });
}
