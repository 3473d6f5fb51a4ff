/**
 * Guarantee: large requests never end a worker in a container of 1 GiB, nor the streams
 * of others on it, and what they held is given back.
 */
import assert from "node:assert/strict";
import { makeKey } from "../support/gateway/key_commands.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import {
  createMemoryCgroup,
  type MemoryCgroup,
  residentBytes,
} from "../support/memory/memory_cgroup.ts";
import { waitUntilBack } from "../support/memory/memory_back.ts";
import { TUNING } from "../support/memory/tuning.ts";
import { choiceChunk, event } from "../support/model_servers/model_answers.ts";
import { owning, print, startProcess } from "../support/process.ts";
import { startNatsServer } from "../support/servers/nats_server.ts";
import { startRedisServer } from "../support/servers/redis_server.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

const MIB = 1024 * 1024;
/** As compose gives it to a worker. */
const CONTAINER_BYTES = 1024 * MIB;
const RESIDENT_BYTES_MAX = 700 * MIB;
/** For the edge, which is not what is tested. */
const EDGE_BODIES_BYTES_MAX = 8 * 1024 * MIB;
const START_MS = 30_000;
/** After this many small requests a worker has what it needs for all others. */
const WARM_UP = 200;
const VICTIM_PARTS = 300;
const VICTIM_PART_MS = 100;
/** How long the model server works on each large request. */
const WORK_MS = 500;
const DONE = "data: [DONE]\n\n";
const VICTIM = "victim";
const PART = "x".repeat(100);

/** A model server: slow for the victim, and soon ready for anything large. */
function startModelServer() {
  return Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen() {} },
    async (request) => {
      const { pathname } = new URL(request.url);
      const body = await request.bytes();
      const start = new TextDecoder().decode(body.subarray(0, 1_000));
      if (pathname.endsWith("/audio/speech")) {
        return new Response(slowly((part) => part), {
          headers: { "content-type": "audio/mpeg" },
        });
      }
      if (start.includes(VICTIM)) {
        const ends = event(choiceChunk({}, "stop")) + DONE;
        const says = (part: string) => event(choiceChunk({ content: part }));
        return new Response(slowly(says, ends), {
          headers: { "content-type": "text/event-stream" },
        });
      }
      await sleep(WORK_MS);
      if (pathname.endsWith("/images/edits")) {
        return Response.json({ created: 1, data: [{ b64_json: "AAAA" }] });
      }
      const message = { role: "assistant", content: "done" };
      return Response.json({ choices: [{ message, finish_reason: "stop" }] });
    },
  );
}

function slowly(
  encode: (part: string) => string,
  end = "",
): ReadableStream<Uint8Array> {
  return ReadableStream.from((async function* () {
    for (let left = VICTIM_PARTS; left > 0; left -= 1) {
      await sleep(VICTIM_PART_MS);
      yield new TextEncoder().encode(encode(PART));
    }
    yield new TextEncoder().encode(end);
  })());
}

/** What is sent at once, and what streams meanwhile. */
interface Load {
  worker: "chat-worker" | "media-worker";
  count: number;
  path: string;
  what: string;
  body: (at: number) => BodyInit;
  small: () => BodyInit;
  victim: { path: string; body: object };
}

/**
 * Chats about an image whose address has this many bytes: a stream, and a whole one.
 */
function chatsAbout(bytes: number): readonly Uint8Array<ArrayBuffer>[] {
  const url = `data:image/png;base64,${"A".repeat(bytes)}`;
  const content = [{ type: "image_url", image_url: { url } }];
  return [true, false].map((stream) => {
    const messages = [{ role: "user", content }];
    const body = { model: "chat", stream, messages };
    return new TextEncoder().encode(JSON.stringify(body));
  });
}

const [small = assert.fail()] = chatsAbout(1_000);
const large = chatsAbout(19_500_000);
const medium = chatsAbout(5_000_000);

/** The head of a PNG of one pixel, and bytes that nobody reads. */
function picture(bytes: number): Uint8Array<ArrayBuffer> {
  const head = Uint8Array.fromBase64(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  );
  const all = new Uint8Array(bytes);
  all.set(head);
  return all;
}

/** An upload of two pictures. */
function uploadForm(pictures: Blob): FormData {
  const form = new FormData();
  form.set("model", "image");
  form.set("prompt", "p");
  form.append("image[]", pictures, "a.png");
  form.append("image[]", pictures, "b.png");
  return form;
}

const half = new Blob([picture(31_500_000)]);
const tiny = new Blob([picture(1_000)]);
const chatVictim = {
  path: "/chat/completions",
  body: {
    model: "chat",
    stream: true,
    messages: [{ role: "user", content: VICTIM }],
  },
};

const LOADS: Load[] = [
  {
    worker: "chat-worker",
    count: 40,
    what: "images of 19.5 MB",
    path: "/chat/completions",
    body: (at) => large[at % 2] ?? assert.fail(),
    small: () => small,
    victim: chatVictim,
  },
  {
    worker: "chat-worker",
    count: 200,
    what: "images of 5 MB",
    path: "/chat/completions",
    body: (at) => medium[at % 2] ?? assert.fail(),
    small: () => small,
    victim: chatVictim,
  },
  {
    worker: "media-worker",
    count: 16,
    path: "/images/edits",
    what: "uploads of 63 MB",
    body: () => uploadForm(half),
    small: () => uploadForm(tiny),
    victim: {
      path: "/audio/speech",
      body: { model: "speech", input: VICTIM, voice: "alloy" },
    },
  },
];

/** The worker in the group, and all that it needs outside of it. */
async function startAround(worker: Load["worker"], group: MemoryCgroup) {
  await using owned = new AsyncDisposableStack();
  const server = owned.use(startModelServer());
  const nats = owned.use(await startNatsServer());
  const redis = owned.use(await startRedisServer());
  const models = await Deno.makeTempFile({ suffix: ".json" });
  owned.defer(() => Deno.remove(models));
  await Deno.writeTextFile(models, modelsAt(server.addr.port));
  const env = {
    NATS_URL: `nats://${nats.server}`,
    REDIS_URL: redis.url,
    MODELS_FILE: models,
  };
  const gateway = owned.use(await startGateway("services", { env }));
  // An edge for the load, and one that it does not keep from its other streams.
  for (const _ of ["load", "victim"]) {
    await gateway.start("edge-auth", {
      BODIES_BYTES_MAX: String(EDGE_BODIES_BYTES_MAX),
    });
  }
  const main = ["run", "-A", `services/${worker}/main.ts`];
  const process = owned.use(startProcess({
    ...group.inside(Deno.execPath(), main),
    env: { ...env, ...TUNING, NO_COLOR: "1", OPS_PORT: "0" },
  }));
  await waitFor(() => /"event":"ready"/.test(process.output()), {
    what: () => process.output(),
    timeoutMs: START_MS,
  });
  const keys: string[] = [];
  // One account alone would get two thirds of the memory.
  for (const owner of ["a", "b", "c"]) {
    const { key } = await makeKey(env, `--owner=${owner}@example.com`);
    keys.push(key);
  }
  return owning(owned, { gateway, process, keys });
}

/** Sends requests, with the keys in turn. */
function asking(keys: readonly string[]) {
  let count = 0;
  return (url: string, content: BodyInit, type?: string) => {
    const key = keys[count % keys.length];
    count += 1;
    return fetch(url, {
      method: "POST",
      body: content,
      headers: {
        authorization: `Bearer ${key}`,
        ...type !== undefined && { "content-type": type },
      },
    });
  };
}

for (const { worker, count, what, path, body, small, victim } of LOADS) {
  Deno.test(`${count} ${what} neither kill a ${worker} of 1 GiB nor cut another's stream`, async () => {
    const group = await createMemoryCgroup({ bytesMax: CONTAINER_BYTES });
    if (typeof group === "string") {
      print(`Left out: a ${worker} in a container of 1 GiB: ${group}`);
      return;
    }
    await using _group = group;
    await using started = await startAround(worker, group);
    const { gateway, process, keys } = started;
    const ask = asking(keys);
    const json = "application/json";
    const type = worker === "chat-worker" ? json : undefined;
    const statusesOf = (count: number, body: (at: number) => BodyInit) =>
      Promise.all(
        Array.from({ length: count }, async (_, at) => {
          const response = await ask(gateway.baseUrl(0) + path, body(at), type);
          // Reading them must not keep the edge from hearing of Redis.
          assert.doesNotMatch(await response.text(), /cannot check API keys/);
          return response.status;
        }),
      );
    await statusesOf(WARM_UP, small);
    const idle = (await residentBytes(process.pid)).now;
    const streaming = ask(
      gateway.baseUrl(1) + victim.path,
      JSON.stringify(victim.body),
      json,
    )
      .then((response) => response.text());
    // It is awaited below, unless the test fails before.
    streaming.catch(() => {});
    const statuses = await statusesOf(count, body);
    const { highest } = await residentBytes(process.pid);
    const counts = Object.entries(Object.groupBy(statuses, String))
      .map(([status, all]) => `${status}: ${all?.length}`).join(", ");
    print(
      `${worker}: idle ${mib(idle)}, highest ${mib(highest)}; ${counts}`,
    );
    assert.equal(await group.killCount(), 0);
    assert.ok(process.isRunning, process.output());
    assert.ok(highest < RESIDENT_BYTES_MAX, mib(highest));
    const allowed = new Set([200, 429, 503]);
    assert.deepEqual(statuses.filter((each) => !allowed.has(each)), []);
    assert.ok(statuses.includes(200));
    const text = await streaming;
    const parts = text.split(PART).length - 1;
    assert.equal(parts, VICTIM_PARTS, text.slice(-300));
    await waitUntilBack(process.pid, idle);
  });
}

const mib = (bytes: number) => `${Math.round(bytes / MIB)} MiB`;

function modelsAt(port: number): string {
  const base_url = `http://127.0.0.1:${port}/v1`;
  const backends = [{ type: "openai", base_url, model: "theirs" }];
  const models = [
    { id: "chat", accepts: ["image"], backends },
    { id: "image", kind: "image", backends },
    { id: "speech", kind: "speech", backends },
  ];
  return JSON.stringify({ models });
}
