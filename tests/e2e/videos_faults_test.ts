/**
 * Guarantee: a video survives whatever process is killed while it is started, made or
 * downloaded. Its client gets it or a clear error, and it is counted once.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { Principal } from "@gateway/shared/keys/record";
import { Simulator } from "../../services/model-simulator/simulator.ts";
import { usageCounted } from "../support/admission_fixture.ts";
import { startNatsServer } from "../support/nats_server.ts";
import { testRedisLink } from "../support/redis_link.ts";
import { startRedisServer } from "../support/redis_server.ts";
import {
  makeKey,
  type RunningServiceProcess,
  startService,
} from "../support/service_processes.ts";
import { waitFor } from "../support/wait_for.ts";

const MODEL = "simulated-video-1";
const STEP_MS = 30_000;

interface Video {
  id: string;
  status: string;
  error: { message: string } | null;
}

Deno.test("a video survives the death of any process", async (t) => {
  await using stack = new AsyncDisposableStack();
  const redis = stack.use(
    await startRedisServer({
      args: ["--appendonly", "yes", "--appendfsync", "always"],
    }),
  );
  const nats = stack.use(await startNatsServer());
  let asked = 0;
  const onRequest = () => void (asked += 1);
  let simulator = new Simulator({ onRequest });
  stack.defer(() => simulator[Symbol.asyncDispose]());
  const env = {
    ...{ REDIS_URL: redis.url, NATS_URL: `nats://${nats.server}` },
    MODEL_SIMULATOR_URL: simulator.url,
  };
  const start = async (name: "edge-auth" | "media-worker") =>
    stack.use(await startService(name, env));
  const edges = [await start("edge-auth"), await start("edge-auth")];
  const workers = [await start("media-worker"), await start("media-worker")];
  const { key, id: keyId } = await makeKey(env, "--scopes=video");
  const call = (edge: number, path: string, init: RequestInit = {}) =>
    fetch(`${edges[edge]?.url}/v1/videos${path}`, {
      ...init,
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
        ...Object(init.headers),
      },
    });
  const create = (edge: number, phrase: string) =>
    call(edge, "", {
      method: "POST",
      body: JSON.stringify({
        ...{ model: MODEL, prompt: `A kite [simulator: ${phrase}]` },
        // The file has two pieces, for `stall after 1 tokens`.
        ...{ seconds: "4", size: "360x240" },
      }),
    });
  const begin = async (edge: number, phrase: string): Promise<string> => {
    const response = await create(edge, phrase);
    const { id } = await response.json();
    assert.equal(response.status, 200);
    return id;
  };
  const ended = (edge: number, id: string) =>
    waitFor(async () => {
      const response = await call(edge, `/${id}`);
      const video: Video = await response.json();
      assert.equal(response.status, 200, JSON.stringify(video));
      return /completed|failed/.test(video.status) ? video : undefined;
    }, { what: `${id} to end`, timeoutMs: STEP_MS, intervalMs: 200 });
  const listed = async (edge: number): Promise<string[]> => {
    const { data } = await (await call(edge, "?order=asc")).json();
    return data.map(({ id }: Video) => id);
  };
  const link = testRedisLink({ url: redis.url });
  stack.defer(() => link.close());
  await link.ready(STEP_MS);
  const command = (...line: string[]) => link.command(line);
  let principal: Principal | null = null;
  /** Seconds of film that were counted for the key. */
  const counted = async () => {
    if (principal === null) {
      const [name] = [await command("KEYS", `key:*:${keyId}`)].flat();
      const [, ownerId = ""] = /\{(\w+)\}/.exec(String(name)) ?? [];
      principal = { keyId, ownerId };
    }
    return (await usageCounted({ command }, principal)).videoSeconds;
  };
  /** Kills the process -9, and starts another in its place. */
  const replace = async (
    list: RunningServiceProcess[],
    at: number,
    name: "edge-auth" | "media-worker",
  ) => {
    await list[at]?.process.kill();
    list[at] = await start(name);
  };
  /** The worker that runs a request now. */
  const busyWorker = () =>
    waitFor(async () => {
      for (const [index, { ready }] of workers.entries()) {
        const url = `http://127.0.0.1:${ready.opsPort}/metrics`;
        const text = await (await fetch(url)).text();
        if (/^gateway_worker_in_flight 1$/m.test(text)) return { index };
      }
    }, { what: "a busy worker", timeoutMs: STEP_MS, intervalMs: 20 });
  const content = (edge: number, id: string, from = 0) =>
    call(edge, `/${id}/content`, { headers: { range: `bytes=${from}-` } });
  let seconds = 0;
  for (const edge of edges.keys()) {
    const isServed = async () => {
      const response = await create(edge, "video fails");
      await response.body?.cancel();
      return response.ok;
    };
    await waitFor(isServed, { what: "workers", timeoutMs: STEP_MS });
  }
  const others = await listed(0);

  await t.step(
    "its worker, while it is started: another one starts it",
    async () => {
      const creating = create(0, "first token 3000 ms");
      await replace(workers, (await busyWorker()).index, "media-worker");
      const response = await creating;
      const { id } = await response.json();
      assert.equal(response.status, 200);
      assert.equal((await ended(1, id)).status, "completed");
      assert.deepEqual(await listed(1), [...others, id]);
      seconds += 4;
      assert.equal(await counted(), seconds);
    },
  );

  await t.step(
    "its edge, while it is started: nothing is left or counted",
    async () => {
      const before = await listed(1);
      const asks = asked;
      const creating = create(0, "first token 60000 ms")
        .then(() => "answered", () => "broken off");
      await waitFor(() => asked > asks, {
        what: "the engine",
        timeoutMs: STEP_MS,
      });
      await replace(edges, 0, "edge-auth");
      assert.equal(await creating, "broken off");
      assert.deepEqual(await listed(1), before);
      assert.equal(await counted(), seconds);
    },
  );

  await t.step("everything, while it waits and is made", async () => {
    const id = await begin(0, "video takes 8 s");
    await replace(edges, 0, "edge-auth");
    for (const at of workers.keys()) await replace(workers, at, "media-worker");
    await redis.restart();
    await replace(edges, 1, "edge-auth");
    const [one, other] = await Promise.all([ended(0, id), ended(1, id)]);
    assert.equal(one.status, "completed");
    assert.equal(other.status, "completed");
    seconds += 4;
    assert.equal(await counted(), seconds);
  });

  await t.step(
    "its worker or edge, while it is downloaded: the rest can be had",
    async () => {
      const id = await begin(0, "stall after 1 tokens");
      await ended(0, id);
      seconds += 4;
      const kills = [
        async () =>
          await replace(workers, (await busyWorker()).index, "media-worker"),
        () => replace(edges, 0, "edge-auth"),
      ];
      for (const kill of kills) {
        const response = await content(0, id);
        assert.equal(response.status, 206);
        const size = Number(response.headers.get("content-length"));
        const parts: Uint8Array[] = [];
        const reading = (async () => {
          for await (const part of response.body ?? []) parts.push(part);
        })();
        const isCut = reading.then(() => false, () => true);
        await waitFor(() => parts.length > 0, {
          what: "bytes",
          timeoutMs: STEP_MS,
        });
        await kill();
        assert.equal(await isCut, true, "a film that breaks off is no film");
        const got = Buffer.concat(parts).length;
        assert.ok(got < size, `${got} of ${size}`);
        const rest = await content(1, id, got);
        parts.push(await rest.bytes());
        const film = Buffer.concat(parts);
        assert.equal(film.length, size);
        assert.equal(film.toString("latin1", 4, 8), "ftyp");
      }
      assert.equal(await counted(), seconds);
    },
  );

  await t.step(
    "its engine, which forgets it: it has failed, with a clear error",
    async () => {
      const id = await begin(0, "video takes 60 s");
      const { port } = simulator;
      await simulator[Symbol.asyncDispose]();
      // It cannot be asked for a moment, which proves nothing.
      const away: Video = await (await call(1, `/${id}`)).json();
      assert.equal(away.status, "queued");
      simulator = new Simulator({ port, onRequest });
      const { status, error } = await ended(1, id);
      assert.equal(status, "failed");
      assert.match(error?.message ?? "", /no longer has this video/);
      assert.equal(await counted(), seconds);
    },
  );
});
