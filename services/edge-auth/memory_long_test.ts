/**
 * Guarantee: large requests of one key never end an edge in a container of 1 GiB, nor
 * the streams of others on it, and what they held is given back.
 */
import assert from "node:assert/strict";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { startGateway } from "../../tests/support/gateway/gateway.ts";
import { makeKey } from "../../tests/support/gateway/key_commands.ts";
import { simulates } from "../../tests/support/gateway/simulator.ts";
import {
  createMemoryCgroup,
  type MemoryCgroup,
  residentBytes,
} from "../../tests/support/memory/memory_cgroup.ts";
import { waitUntilBack } from "../../tests/support/memory/memory_back.ts";
import { TUNING } from "../../tests/support/memory/tuning.ts";
import { print, startProcess } from "../../tests/support/process.ts";
import { startNatsServer } from "../../tests/support/servers/nats_server.ts";
import { startRedisServer } from "../../tests/support/servers/redis_server.ts";
import { waitFor } from "../../tests/support/wait_for.ts";

const MIB = 1024 * 1024;
/** As compose gives it to an edge. */
const CONTAINER_BYTES = 1024 * MIB;
const HIGHEST_BYTES_MAX = 700 * MIB;
const START_MS = 30_000;
/** After this many small requests an edge has what it needs for all others. */
const WARM_UP = 200;

type Body = Uint8Array<ArrayBuffer>;

/** A request, and what it is answered. */
type Ask = (key: string, body: BodyInit) => Promise<Response>;

/** A chat about an image whose address has this many bytes. */
function imageBody(bytes: number, { stream }: { stream: boolean }): Body {
  const [{ content: text } = assert.fail()] = simulates(
    "20 tokens, 10 tokens per second",
  );
  const url = `data:image/png;base64,${"A".repeat(bytes)}`;
  const content = [
    { type: "text", text },
    { type: "image_url", image_url: { url } },
  ];
  const messages = [{ role: "user", content }];
  const body = { model: DEFAULT_MODEL_ID, stream, messages };
  return new TextEncoder().encode(JSON.stringify(body));
}

/** Starts an edge in the group, and waits until it is ready. */
async function startEdge(group: MemoryCgroup, env: Record<string, string>) {
  const main = ["run", "-A", "services/edge-auth/main.ts"];
  const edge = startProcess({
    ...group.inside(Deno.execPath(), main),
    env: {
      ...env,
      ...TUNING,
      NO_COLOR: "1",
      PORT: "0",
      OPS_PORT: "0",
      MODEL_SIMULATOR_URL: "http://127.0.0.1:9/v1",
    },
  });
  const line = await waitFor(
    () => /^.*"event":"ready".*$/m.exec(edge.output())?.[0],
    { what: () => edge.output(), timeoutMs: START_MS },
  );
  const url = `http://127.0.0.1:${JSON.parse(line).port}/v1/chat/completions`;
  const ask: Ask = (key, body) =>
    fetch(url, {
      method: "POST",
      body,
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
      },
    });
  return { edge, ask };
}

/** Sends all at once, and returns their statuses. */
function statusesOf(ask: () => Promise<Response>, count: number) {
  return Promise.all(
    Array.from({ length: count }, async () => {
      const response = await ask();
      await response.text();
      return response.status;
    }),
  );
}

/** A stream of 20 s. */
async function victimText(ask: Ask, key: string): Promise<string> {
  const messages = simulates("400 tokens, 20 tokens per second");
  const body = {
    model: DEFAULT_MODEL_ID,
    stream: true,
    max_tokens: 10_000,
    messages,
  };
  const response = await ask(key, JSON.stringify(body));
  return await response.text();
}

/** Sends large requests of a key: 40 with images of 19.5 MB, then 200 of 5 MB. */
async function sendLarge(ask: Ask, key: string): Promise<number[]> {
  const whole = imageBody(19_500_000, { stream: false });
  const streamed = imageBody(19_500_000, { stream: true });
  const images = await Promise.all([
    statusesOf(() => ask(key, whole), 20),
    statusesOf(() => ask(key, streamed), 20),
  ]);
  const smaller = imageBody(5_000_000, { stream: true });
  return [...images.flat(), ...await statusesOf(() => ask(key, smaller), 200)];
}

Deno.test("large requests of one key neither kill an edge of 1 GiB nor cut another's stream", async () => {
  const group = await createMemoryCgroup({ bytesMax: CONTAINER_BYTES });
  if (typeof group === "string") {
    print(`Left out: large requests in a container of 1 GiB: ${group}`);
    return;
  }
  await using _group = group;
  await using nats = await startNatsServer();
  await using redis = await startRedisServer();
  const env = { NATS_URL: `nats://${nats.server}`, REDIS_URL: redis.url };
  await using gateway = await startGateway("services", { env });
  await gateway.start("chat-worker");
  const { edge, ask } = await startEdge(group, env);
  await using _edge = edge;
  const [batch, victim] = [await makeKey(env), await makeKey(env)];
  await statusesOf(
    () => ask(batch.key, imageBody(1_000, { stream: false })),
    WARM_UP,
  );
  const { now: idle } = await residentBytes(edge.pid);
  const stream = victimText(ask, victim.key);
  const statuses = await sendLarge(ask, batch.key);
  const { highest } = await residentBytes(edge.pid);
  const counts = Object.entries(Object.groupBy(statuses, String))
    .map(([status, all]) => `${status}: ${all?.length}`).join(", ");
  const sizes = [idle, highest].map((bytes) => Math.round(bytes / MIB));
  print(`idle ${sizes[0]} MiB, highest ${sizes[1]} MiB; ${counts}`);
  assert.equal(await group.killCount(), 0);
  assert.ok(edge.isRunning, edge.output());
  assert.ok(highest < HIGHEST_BYTES_MAX, `${sizes[1]} MiB`);
  assert.ok(statuses.every((each) => [200, 429, 503].includes(each)), counts);
  assert.ok(statuses.includes(200));
  assert.match(await stream, /data: \[DONE\]\n\n$/);
  await waitUntilBack(edge.pid, idle);
});
