// Promise: `docker compose up` starts a cluster that streams, scales, survives the
// loss of a container, and keeps its keys. Run by `deno task test:compose`: it needs
// a Docker engine and the images, so `deno task test` leaves it out.
import assert from "node:assert/strict";
import { mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import OpenAI from "openai";
import { Load, send } from "./load.ts";
import { say, type Stack, startStack, until } from "./stack.ts";

const STREAMS = 8;
/** Requests that may miss a deadline while containers start on a busy machine. */
const LATE_MAX = 2 * STREAMS;
/** Reads of some twenty events; from a proxy that buffers they come in one or two. */
const READS_MIN = 6;
/** Five times the look-ups that an address may cause in a second. */
const GUESSES = 100;
const MIB = 1024 * 1024;
/** `BODY_BYTES_MAX` of an edge, and `BODY_MAX` of the proxy. */
const CHAT_BYTES_MAX = 20 * MIB;
const PROXY_BYTES_MAX = 64 * MIB;

/** The stack, and a key with which to call it. */
interface Running {
  readonly stack: Stack;
  readonly id: string;
  readonly key: string;
}

/** Runs requests during an action, and until `more` of them are complete. */
async function underLoad(
  { stack, key }: Running,
  what: () => Promise<unknown>,
  more = STREAMS,
): Promise<Load> {
  const load = new Load(stack, key, STREAMS);
  try {
    await load.answers(STREAMS);
    await what();
    await load.answers(more);
  } finally {
    await load.stop();
  }
  return load;
}

async function assertNoneFailed(load: Load): Promise<void> {
  assert.equal(load.failures.length, 0, await load.report());
  assert.ok(load.late <= LATE_MAX, await load.report());
  say(`${load.complete} complete, ${load.late} to be tried again`);
}

Deno.test("the compose stack", async (t) => {
  await using stack = await startStack({
    SIMULATOR_TOKENS_PER_SECOND: "40",
    DRAIN_SECONDS: "20",
    STOP_GRACE_PERIOD: "30s",
  });
  const running = { stack, ...await stack.createKey() };

  await t.step(
    "streams through the proxy, unbuffered",
    () => streamUnbuffered(running),
  );
  await t.step(
    "answers the official SDK through the proxy",
    () => answerSdk(running),
  );
  await t.step(
    "speaks, draws and listens through the proxy",
    () => carryMedia(running),
  );
  await t.step(
    "refuses large bodies, closes slow connections",
    () => refuseLarge(running),
  );
  await t.step(
    "exposes only the console under its name",
    () => exposeConsoleOnly(running),
  );
  await t.step(
    "gives a worker no route to Redis, nobody root",
    () => separateWorkers(running),
  );
  await t.step(
    "counts unknown keys by client, not by proxy",
    () => countUnknownKeys(running),
  );
  await t.step(
    "scales workers 1 -> 4 -> 2 without a failure",
    () => scaleWorkers(running),
  );
  await t.step(
    "scales edges 1 -> 3 -> 2, and all of them work",
    () => scaleEdges(running),
  );
  await t.step(
    "survives the loss of a worker, and of an edge",
    () => surviveLosses(running),
  );
  await t.step(
    "keeps keys across a stop and a restored backup",
    () => keepKeys(running),
  );
});

function sdkOf({ stack, key }: Running): OpenAI {
  return new OpenAI({
    baseURL: `${stack.url}/v1`,
    apiKey: key,
    maxRetries: 0,
    fetch: (url, init) => fetch(url, { ...init, client: stack.client }),
  });
}

async function streamUnbuffered({ stack, key }: Running): Promise<void> {
  const { status, text, readsAtMs } = await send(stack, key, {
    kind: "stream",
  });
  assert.equal(status, 200);
  assert.match(text, /data: \[DONE\]\s*$/);
  const events = text.split("\n\n").length;
  const [first = Infinity] = readsAtMs;
  const spanMs = (readsAtMs.at(-1) ?? 0) - first;
  assert.ok(events > 10, `only ${events} events`);
  assert.ok(readsAtMs.length >= READS_MIN, `${readsAtMs.length} reads`);
  assert.ok(spanMs > 300, `all within ${spanMs} ms`);
}

async function answerSdk(running: Running): Promise<void> {
  const sdk = sdkOf(running);
  const [model] = (await sdk.models.list()).data;
  const request = {
    model: model?.id ?? "",
    messages: [{ role: "user" as const, content: "Say hello." }],
  };
  const whole = await sdk.chat.completions.create(request);
  assert.ok((whole.usage?.completion_tokens ?? 0) > 0);
  const streamed = await sdk.chat.completions.stream(request)
    .finalChatCompletion();
  assert.ok((streamed.choices[0]?.message.content ?? "").length > 0);
  await assert.rejects(
    sdk.chat.completions.create({ ...request, model: "nothing" }),
    OpenAI.NotFoundError,
  );
}

async function carryMedia(running: Running): Promise<void> {
  const sdk = sdkOf(running);
  const spoken = await sdk.audio.speech.create({
    model: "simulated-speech-1",
    voice: "alloy",
    input: "[simulator: 20 tokens]",
    response_format: "wav",
  });
  const reads: Uint8Array<ArrayBuffer>[] = [];
  for await (const bytes of spoken.body ?? []) reads.push(bytes);
  assert.ok(reads.length >= READS_MIN, `${reads.length} reads`);

  const { data } = await sdk.images.generate({
    model: "simulated-image-1",
    prompt: "a red boat",
  });
  assert.match(data?.[0]?.b64_json ?? "", /^iVBORw0KGgo/);

  // Longer than the largest chat request.
  const silence = new Uint8Array(CHAT_BYTES_MAX);
  const heard = await sdk.audio.transcriptions.create({
    model: "simulated-transcription-1",
    file: new File([...reads, silence], "boat.wav"),
  });
  assert.match(heard.text, /boat\.wav/);
}

async function refuseLarge({ stack, key }: Running): Promise<void> {
  for (const bytes of [CHAT_BYTES_MAX + 1, PROXY_BYTES_MAX + 1]) {
    const response = await fetch(`${stack.url}/v1/chat/completions`, {
      client: stack.client,
      method: "POST",
      headers: { authorization: `Bearer ${key}` },
      body: new Uint8Array(bytes),
    });
    const { error } = await response.json();
    assert.equal(response.status, 413);
    assert.equal(error.code, "request_too_large");
  }
  await using slow = await Deno.connectTls({
    hostname: "localhost",
    port: Number(new URL(stack.url).port),
    caCerts: [await stack.authority()],
  });
  await slow.write(new TextEncoder().encode("GET / HTTP/1.1\r\nHost: loc"));
  const startMs = performance.now();
  await slow.read(new Uint8Array(1_024)).catch(() => null);
  const closedMs = performance.now() - startMs;
  assert.ok(closedMs > 5_000 && closedMs < 15_000, `after ${closedMs} ms`);
}

async function exposeConsoleOnly({ stack }: Running): Promise<void> {
  const { hostname, port } = new URL(stack.consoleUrl);
  const tcp = await Deno.connect({
    hostname: "localhost",
    port: Number(port),
  });
  await using tls = await Deno.startTls(tcp, {
    hostname,
    caCerts: [await stack.authority()],
  });
  const request = `GET / HTTP/1.1\r\nHost: ${hostname}:${port}\r\n\r\n`;
  await tls.write(new TextEncoder().encode(request));
  const answer = new Uint8Array(1_024);
  const length = await tls.read(answer) ?? 0;
  assert.match(
    new TextDecoder().decode(answer.subarray(0, length)),
    /^HTTP\/1.1 30[23] /,
  );
  const published = await stack.docker(
    "ps",
    "--filter",
    `label=com.docker.compose.project`,
    "--format",
    '{{.Label "com.docker.compose.service"}} {{.Ports}}',
  );
  const open = published.split("\n").filter((line) => line.includes("->"));
  assert.ok(open.every((line) => line.startsWith("proxy ")), published);
}

async function separateWorkers({ stack }: Running): Promise<void> {
  for (const worker of ["chat-worker", "media-worker"]) {
    await assert.rejects(
      stack.compose(
        "exec",
        "-T",
        worker,
        "deno",
        "eval",
        "await Deno.connect({ hostname: 'redis', port: 6379 })",
      ),
      /resolve|lookup|Name or service/,
    );
  }
  for (const service of SERVICES) {
    const id = await stack.compose("exec", "-T", service, "id", "-u");
    assert.notEqual(id, "0", service);
    await assert.rejects(
      stack.compose("exec", "-T", service, "touch", "/etc/x"),
    );
  }
}

async function countUnknownKeys({ stack, key }: Running): Promise<void> {
  const guesses = Array.from(
    { length: GUESSES },
    () => stack.statusWith(mintKey(randomBytes)),
  );
  assert.equal(await stack.statusInside(mintKey(randomBytes)), 401);
  const statuses = new Set(await Promise.all(guesses));
  assert.deepEqual([...statuses].sort(), [401, 429]);
  assert.equal(await stack.statusWith(key), 200);
}

async function scaleWorkers(running: Running): Promise<void> {
  const { stack } = running;
  const load = await underLoad(running, async () => {
    await stack.scale(1, 4);
    await stack.scale(1, 2);
  });
  await assertNoneFailed(load);
  assert.equal((await stack.containers("chat-worker")).length, 2);
  assert.ok(load.complete > 2 * STREAMS);
}

async function scaleEdges(running: Running): Promise<void> {
  const { stack } = running;
  const load = await underLoad(running, async () => {
    await stack.scale(3, 2);
    await until("every edge to answer", async () => {
      const edges = await stack.containers("edge-auth");
      const logs = await Promise.all(
        edges.map((id) => stack.docker("logs", id)),
      );
      return logs.every((text) => text.includes(`"event":"chat"`));
    });
    await stack.scale(2, 2);
  });
  await assertNoneFailed(load);
}

async function surviveLosses(running: Running): Promise<void> {
  const { stack } = running;
  for (const service of ["chat-worker", "edge-auth"]) {
    const [victim = ""] = await stack.containers(service);
    const kill = () => stack.docker("kill", victim);
    const load = await underLoad(running, kill, 2 * STREAMS);
    // Only requests that ran there, or were sent there while it died, are lost;
    // refused ones can be retried.
    assert.ok(
      load.failures.length <= 2 * STREAMS && load.notRetryable.length === 0,
      await load.report(),
    );
    await stack.docker("start", victim);
  }
}

async function keepKeys({ stack, key, id }: Running): Promise<void> {
  const file = await Deno.makeTempFile({ suffix: ".rdb" });
  await stack.script("backup.sh", file);
  await stack.compose("stop", "--timeout", "5");
  await stack.compose("start");
  await until(
    "the key to work",
    async () => await stack.statusWith(key).catch(() => 0) === 200,
  );

  await stack.gateway("keys", "delete", id);
  assert.equal(await stack.statusWith(key), 401);
  await stack.script("restore.sh", file);
  await Deno.remove(file);
  await until(
    "the key to be back",
    async () => await stack.statusWith(key).catch(() => 0) === 200,
  );
}

const SERVICES = [
  "proxy",
  "edge-auth",
  "chat-worker",
  "media-worker",
  "key-admin",
  "redis",
];
