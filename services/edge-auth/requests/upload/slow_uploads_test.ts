/**
 * Guarantee: a key that begins many uploads and sends almost nothing of them keeps
 * nobody else waiting. It has no slot of a worker, and little memory of the edge.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { encodeMediaHead } from "@gateway/shared/bus/media_head";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import { hashKey, STORE_KEY } from "@gateway/shared/keys/record";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import { randomBytes } from "@gateway/shared/process/ids";
import type { RunRequest } from "@gateway/shared/worker/jobs/job_ports";
import { WorkerMemory } from "@gateway/shared/worker/jobs/memory";
import { amountOf } from "../../../../tests/support/amount.ts";
import { callApi } from "../../../../tests/support/chat_request.ts";
import { startFamily } from "../../../../tests/support/gateway/in_process_worker.ts";
import {
  type LimitedEdge,
  SLOWER,
  startLimitedEdge,
} from "../../../../tests/support/gateway/limited_edge.ts";
import {
  type KeyOptions,
  type RedisWorld,
  startRedisWorld,
  STORE_NAME,
} from "../../../../tests/support/limits/admission_fixture.ts";
import { startNatsServer } from "../../../../tests/support/servers/nats_server.ts";
import { startStopwatch, until } from "../../../../tests/support/wait_for.ts";
import { BodyBudget } from "../../http/body_budget.ts";

const MODEL = "simulated-transcription-1";
const CONNECTIONS = amountOf({ usual: 60, full: 300 });
/** How much each connection sends. */
const SENT_BYTES = 40;
/** Slots of the worker: fewer than connections, as in any deployment. */
const SLOTS = 4;
const OTHERS = 20;
/** All of the others' uploads; alone they take a tenth of it. */
const OTHERS_MS_MAX = 5_000;

/** Where in its form a connection stops. */
const STOPS = [
  { where: "before the first byte of its file", form: "" },
  { where: "in its file", form: partHead("file", "a.wav") },
];

function partHead(name: string, file: string): string {
  return `--b\r\ncontent-disposition: form-data; name="${name}"; ` +
    `filename="${file}"\r\ncontent-type: audio/wav\r\n\r\n`;
}

/** Transcribes everything at once. */
const transcribe: RunRequest = (_request, call) => {
  const head = encodeMediaHead({ content_type: "application/json" });
  void call.write(`${head}{"text":"Good morning."}`, 1);
  return Promise.resolve({ usage: null, tokens: 1 });
};

interface Stack {
  readonly world: RedisWorld;
  readonly edge: LimitedEdge;
  readonly bodyBudget: BodyBudget;
}

/** An edge with its admission, and a worker with {@link SLOTS}. */
async function startStack(owner: AsyncDisposableStack): Promise<Stack> {
  const world = owner.use(await startRedisWorld());
  await world.command("SET", STORE_KEY, STORE_NAME);
  const { server } = owner.use(await startNatsServer());
  const worker = { servers: [server], slots: SLOTS, slower: SLOWER };
  owner.use(
    await startFamily(worker, {
      family: "media",
      memory: new WorkerMemory(),
      runners: new Map([[MODEL, transcribe]]),
      close: () => {},
    }),
  );
  const bodyBudget = new BodyBudget(REQUEST_LIMITS);
  const edge = await startLimitedEdge(owner, {
    servers: [server],
    port: world.redis.port,
    door: { bodyBudget },
  });
  await until(() => edge.dispatcher.workers.totals("media").workers === 1);
  return { world, edge, bodyBudget };
}

/** Makes a key for transcriptions, and returns its value. */
async function addKey(
  world: RedisWorld,
  limits: KeyOptions["limits"] = {},
): Promise<string> {
  const value = mintKey(randomBytes);
  const { keyId, ownerId } = await world.addKey({ scopes: "speech", limits });
  const name = hashKey(hashKeyValue(value));
  await world.command("SET", name, `${keyId}:${ownerId}`);
  return value;
}

/** Begins an upload, and sends {@link SENT_BYTES} of it. */
async function begin(
  { edge }: Stack,
  key: string,
  form: string,
): Promise<Socket> {
  const { port } = new URL(edge.baseUrl);
  const socket = connect(Number(port), "127.0.0.1");
  socket.on("error", () => {}); // It may be refused, and reset.
  await once(socket, "connect");
  socket.write(
    "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\n" +
      `authorization: Bearer ${key}\r\ncontent-length: 1000000\r\n` +
      "content-type: multipart/form-data; boundary=b\r\n\r\n" +
      form + partHead("notes", "x".repeat(SENT_BYTES)).slice(0, SENT_BYTES),
  );
  return socket;
}

/** Uploads a whole recording, and returns the status. */
async function upload({ edge }: Stack, key: string): Promise<number> {
  const body = new FormData();
  body.append("model", MODEL);
  body.append("file", new File([new Uint8Array(10_000)], "a.wav"));
  const url = `${edge.baseUrl}/audio/transcriptions`;
  const response = await callApi(url, key, { body });
  await response.text();
  return response.status;
}

for (const { where, form } of STOPS) {
  Deno.test(`${CONNECTIONS} uploads of a key that stop ${where} keep nobody waiting`, async () => {
    await using owner = new AsyncDisposableStack();
    const stack = await startStack(owner);
    const { world, edge, bodyBudget } = stack;
    const slow = await addKey(world, { concurrency: 1, requestsPerMinute: 1 });
    const other = await addKey(world);
    const sockets = await Promise.all(
      Array.from({ length: CONNECTIONS }, () => begin(stack, slow, form)),
    );
    owner.defer(() => sockets.forEach((socket) => socket.destroy()));
    // The edge has begun to read them; all were sent before what follows.
    await until(() => bodyBudget.bytes > 0);
    using watch = startStopwatch();
    const statuses = await Promise.all(
      Array.from({ length: OTHERS }, () => upload(stack, other)),
    );
    const tookMs = watch.ms;
    assert.deepEqual(statuses, Array(OTHERS).fill(200));
    assert.ok(tookMs < OTHERS_MS_MAX, `the others took ${tookMs} ms`);
    assert.equal(edge.dispatcher.running, 0, "the slow uploads have no slot");
    assert.ok(edge.admissions <= OTHERS + 1, `${edge.admissions} admitted`);
    const third = REQUEST_LIMITS.bodiesBytesMax / 3;
    assert.ok(bodyBudget.bytes <= third, `${bodyBudget.bytes} bytes`);
  });
}
