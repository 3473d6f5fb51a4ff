// Promise: a video survives whatever process is killed while it is started, made or
// downloaded. Its client gets it or a clear error, and it is counted once.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { startRedisWorld, usageCounted } from "../support/admission_fixture.ts";
import { callApi, type CallOptions } from "../support/chat_request.ts";
import { startNatsServer } from "../support/nats_server.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { makeKey } from "../support/gateway/key_commands.ts";
import { startSimulator } from "../support/gateway/simulator.ts";
import { until, waitFor } from "../support/wait_for.ts";

interface Video {
  id: string;
  status: string;
}

Deno.test("a video survives the death of any process", async (t) => {
  await using stack = new AsyncDisposableStack();
  const config = ["appendonly yes", "appendfsync always"];
  const world = stack.use(await startRedisWorld({ config }));
  const { redis } = world;
  const nats = stack.use(await startNatsServer());
  const simulator = stack.use(startSimulator());
  const env = {
    REDIS_URL: redis.url,
    NATS_URL: `nats://${nats.server}`,
    MODEL_SIMULATOR_URL: simulator.url,
  };
  const gateway = stack.use(await startGateway("services"));
  const startTwo = async (name: "edge-auth" | "media-worker") => {
    const start = () => gateway.start(name, env);
    const two = [await start(), await start()];
    /** Kills one -9, and starts another in its place. */
    const replace = async (at: number) => {
      await two[at]?.process.kill();
      two[at] = await start();
    };
    return { two, replace };
  };
  const { two: edges, replace: replaceEdge } = await startTwo("edge-auth");
  const { two: workers, replace } = await startTwo("media-worker");
  const { key, id: keyId } = await makeKey(env, "--scopes=video");
  const call = (edge: number, path: string, options: CallOptions = {}) =>
    callApi(`${edges[edge]?.url}/v1/videos${path}`, key, options);
  const create = (edge: number, phrase: string) =>
    call(edge, "", {
      body: {
        model: "simulated-video-1",
        prompt: `A kite [simulator: ${phrase}]`,
        // The file has two pieces, for `stall after 1 tokens`.
        seconds: "4",
        size: "720x1280",
      },
    });
  /** The id of the video that was started. */
  const begun = async (created: Promise<Response>): Promise<string> => {
    const response = await created;
    const { id } = await response.json();
    assert.equal(response.status, 200);
    return id;
  };
  const isMade = (edge: number, id: string) =>
    waitFor(async () => {
      const response = await call(edge, `/${id}`);
      const { status }: Video = await response.json();
      // Redis is not back yet.
      if (response.status === 503) return false;
      assert.match(status, /^(queued|in_progress|completed)$/);
      return status === "completed";
    }, { what: `${id} to end`, intervalMs: 200 });
  const listed = async (edge: number): Promise<string[]> => {
    const { data } = await (await call(edge, "?order=asc")).json();
    return data.map(({ id }: Video) => id);
  };
  const record = String(await world.command("KEYS", `key:*:${keyId}`));
  const [, ownerId = ""] = /\{(\w+)\}/.exec(record) ?? [];
  let videos = 0;
  const areCounted = async () => {
    const { videoSeconds } = await usageCounted(world, { ownerId, keyId });
    assert.equal(videoSeconds, 4 * videos);
  };
  /** Replaces the worker that runs a request now. */
  const replaceBusyWorker = async () => {
    const { index } = await until(async () => {
      for (const [index, { ready }] of workers.entries()) {
        const url = `http://127.0.0.1:${ready.opsPort}/metrics`;
        const text = await (await fetch(url)).text();
        if (/^gateway_worker_in_flight 1$/m.test(text)) return { index };
      }
    });
    await replace(index);
  };
  for (const edge of edges.keys()) {
    await until(async () => {
      const response = await create(edge, "video fails");
      await response.body?.cancel();
      return response.ok;
    });
  }
  const others = await listed(0);

  await t.step(
    "a worker killed at its start: another one starts it",
    async () => {
      const creating = create(0, "first token 3000 ms");
      await replaceBusyWorker();
      const id = await begun(creating);
      await isMade(1, id);
      assert.deepEqual(await listed(1), [...others, id]);
      videos += 1;
      await areCounted();
    },
  );

  await t.step("an edge killed at its start: nothing is counted", async () => {
    const before = await listed(1);
    const { length } = simulator.asked;
    const creating = create(0, "first token 60000 ms");
    const isBroken = creating.then(() => false, () => true);
    await until(() => simulator.asked.length > length);
    await replaceEdge(0);
    assert.ok(await isBroken);
    assert.deepEqual(await listed(1), before);
    await areCounted();
  });

  await t.step("everything killed while it is made", async () => {
    const id = await begun(create(0, "video takes 5 s"));
    await replaceEdge(0);
    for (const at of workers.keys()) await replace(at);
    await redis.restart();
    await Promise.all([isMade(0, id), isMade(1, id)]);
    videos += 1;
    await areCounted();
  });

  await t.step("killed in a download: the rest can be had", async () => {
    const id = await begun(create(0, "stall after 1 tokens"));
    await isMade(0, id);
    videos += 1;
    const content = (edge: number, from: number) =>
      call(edge, `/${id}/content`, {
        headers: { range: `bytes=${from}-` },
      });
    for (const kill of [replaceBusyWorker, () => replaceEdge(0)]) {
      const response = await content(0, 0);
      assert.equal(response.status, 206);
      const size = Number(response.headers.get("content-length"));
      const parts: Uint8Array[] = [];
      const reading = (async () => {
        for await (const part of response.body ?? []) parts.push(part);
      })();
      const isCut = reading.then(() => false, () => true);
      await until(() => parts.length > 0);
      await kill();
      assert.ok(await isCut, "a film that breaks off is no film");
      const got = Buffer.concat(parts).length;
      assert.ok(got < size, `${got} of ${size}`);
      parts.push(await (await content(1, got)).bytes());
      const film = Buffer.concat(parts);
      assert.equal(film.length, size);
      assert.equal(film.toString("latin1", 4, 8), "ftyp");
    }
    await areCounted();
  });
});
