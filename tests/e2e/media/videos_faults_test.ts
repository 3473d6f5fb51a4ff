// Promise: a video survives whatever process is killed while it is started, made or
// downloaded. Its client gets it or a clear error, and it is counted once.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { ServiceName } from "../../../deploy/up/plan.ts";
import {
  type RedisWorld,
  startRedisWorld,
  usageCounted,
} from "../../support/limits/admission_fixture.ts";
import { callApi, type CallOptions } from "../../support/chat_request.ts";
import { startNatsServer } from "../../support/servers/nats_server.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import { makeKey } from "../../support/gateway/key_commands.ts";
import type { RunningService } from "../../support/gateway/services.ts";
import {
  startSimulator,
  type WatchedSimulator,
} from "../../support/gateway/simulator.ts";
import { until, waitFor } from "../../support/wait_for.ts";

interface Video {
  id: string;
  status: string;
}

/** A key for videos, and whose it is. */
interface Caller {
  key: string;
  keyId: string;
  ownerId: string;
}

interface StudioOptions {
  world: RedisWorld;
  simulator: WatchedSimulator;
  caller: Caller;
  /** Starts a service for them. */
  start: (name: ServiceName) => Promise<RunningService>;
}

/** Two edges and two workers that make videos, and a caller. */
class Studio {
  readonly edges: RunningService[] = [];
  readonly workers: RunningService[] = [];
  /** Videos of four seconds that were made so far. */
  videos = 0;

  readonly world: RedisWorld;
  readonly simulator: WatchedSimulator;
  readonly #caller: Caller;
  readonly #start: (name: ServiceName) => Promise<RunningService>;

  constructor({ world, simulator, caller, start }: StudioOptions) {
    this.world = world;
    this.simulator = simulator;
    this.#caller = caller;
    this.#start = start;
  }

  /** Kills an edge -9. */
  async killEdge(at: number): Promise<void> {
    await this.edges[at]?.process.kill();
  }

  /** Kills an edge -9, and starts another in its place. */
  async replaceEdge(at: number): Promise<void> {
    await this.killEdge(at);
    this.edges[at] = await this.#start("edge-auth");
  }

  /** Kills a worker -9, and starts another in its place. */
  async replaceWorker(at: number): Promise<void> {
    await this.workers[at]?.process.kill();
    this.workers[at] = await this.#start("media-worker");
  }

  /** Replaces the worker that runs a request now. */
  async replaceBusyWorker(): Promise<void> {
    const { index } = await until(async () => {
      for (const [index, { ready }] of this.workers.entries()) {
        const url = `http://127.0.0.1:${ready.opsPort}/metrics`;
        const text = await (await fetch(url)).text();
        if (/^gateway_worker_in_flight 1$/m.test(text)) return { index };
      }
    });
    await this.replaceWorker(index);
  }

  /** Calls a path below `/v1/videos` of an edge. */
  call(edge: number, path: string, options: CallOptions = {}) {
    const url = `${this.edges[edge]?.url}/v1/videos${path}`;
    return callApi(url, this.#caller.key, options);
  }

  /** Asks for a video; the simulator makes it as the phrase says. */
  create(edge: number, phrase: string): Promise<Response> {
    return this.call(edge, "", {
      body: {
        model: "simulated-video-1",
        prompt: `A kite [simulator: ${phrase}]`,
        // The file has two pieces, for `stall after 1 tokens`.
        seconds: "4",
        size: "720x1280",
      },
    });
  }

  /** The id of the video that was started. */
  async idOnceBegun(created: Promise<Response>): Promise<string> {
    const response = await created;
    const { id } = await response.json();
    assert.equal(response.status, 200);
    return id;
  }

  /** Waits until a video is complete. */
  async isMade(edge: number, id: string): Promise<void> {
    await waitFor(async () => {
      const response = await this.call(edge, `/${id}`);
      const { status }: Video = await response.json();
      // Redis is not back yet.
      if (response.status === 503) return false;
      assert.match(status, /^(queued|in_progress|completed)$/);
      return status === "completed";
    }, { what: `${id} to end`, intervalMs: 200 });
  }

  /** The ids of all videos of the caller. */
  async listed(edge: number): Promise<string[]> {
    const { data } = await (await this.call(edge, "?order=asc")).json();
    return data.map(({ id }: Video) => id);
  }

  /** The caller pays for the videos that were made, once for each. */
  async areCounted(): Promise<void> {
    const { videoSeconds } = await usageCounted(this.world, this.#caller);
    assert.equal(videoSeconds, 4 * this.videos);
  }
}

/** Starts two of each service. */
async function startStudio(stack: AsyncDisposableStack): Promise<Studio> {
  const config = ["appendonly yes", "appendfsync always"];
  const world = stack.use(await startRedisWorld({ config }));
  const nats = stack.use(await startNatsServer());
  const simulator = stack.use(startSimulator());
  const env = {
    REDIS_URL: world.redis.url,
    NATS_URL: `nats://${nats.server}`,
    MODEL_SIMULATOR_URL: simulator.url,
  };
  const gateway = stack.use(await startGateway("services"));
  const start = (name: ServiceName) => gateway.start(name, env);
  const edges = [await start("edge-auth"), await start("edge-auth")];
  const workers = [await start("media-worker"), await start("media-worker")];
  const { key, id: keyId } = await makeKey(env, "--scopes=video");
  const record = String(await world.command("KEYS", `key:*:${keyId}`));
  const [, ownerId = ""] = /\{(\w+)\}/.exec(record) ?? [];
  const caller = { key, keyId, ownerId };
  const studio = new Studio({ world, simulator, caller, start });
  studio.edges.push(...edges);
  studio.workers.push(...workers);
  return studio;
}

async function losesStartingWorker(
  studio: Studio,
  others: readonly string[],
): Promise<void> {
  const creating = studio.create(0, "first token 3000 ms");
  await studio.replaceBusyWorker();
  const id = await studio.idOnceBegun(creating);
  await studio.isMade(1, id);
  assert.deepEqual(await studio.listed(1), [...others, id]);
  studio.videos += 1;
  await studio.areCounted();
}

async function losesStartingEdge(studio: Studio): Promise<void> {
  const before = await studio.listed(1);
  const { length } = studio.simulator.requests;
  const creating = studio.create(0, "first token 60000 ms");
  const isBroken = creating.then(() => false, () => true);
  await until(() => studio.simulator.requests.length > length);
  await studio.replaceEdge(0);
  assert.ok(await isBroken);
  assert.deepEqual(await studio.listed(1), before);
  await studio.areCounted();
}

async function losesEverything(studio: Studio): Promise<void> {
  const id = await studio.idOnceBegun(studio.create(0, "video takes 5 s"));
  await studio.replaceEdge(0);
  for (const at of studio.workers.keys()) await studio.replaceWorker(at);
  await studio.world.redis.restart();
  await Promise.all([studio.isMade(0, id), studio.isMade(1, id)]);
  studio.videos += 1;
  await studio.areCounted();
}

async function losesDownload(studio: Studio): Promise<void> {
  const id = await studio.idOnceBegun(studio.create(0, "stall after 1 tokens"));
  await studio.isMade(0, id);
  studio.videos += 1;
  const content = (edge: number, from: number) =>
    studio.call(edge, `/${id}/content`, {
      headers: { range: `bytes=${from}-` },
    });
  for (
    const kill of [
      () => studio.replaceBusyWorker(),
      // The last step: nobody needs another one in its place.
      () => studio.killEdge(0),
    ]
  ) {
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
    const bytes = Buffer.concat(parts).length;
    assert.ok(bytes < size, `${bytes} of ${size}`);
    parts.push(await (await content(1, bytes)).bytes());
    const film = Buffer.concat(parts);
    assert.equal(film.length, size);
    assert.equal(film.toString("latin1", 4, 8), "ftyp");
  }
  await studio.areCounted();
}

Deno.test("a video survives the death of any process", async (t) => {
  await using stack = new AsyncDisposableStack();
  const studio = await startStudio(stack);
  for (const edge of studio.edges.keys()) {
    await until(async () => {
      const response = await studio.create(edge, "video fails");
      await response.body?.cancel();
      return response.ok;
    });
  }
  const others = await studio.listed(0);

  await t.step(
    "a worker killed at its start: another one starts it",
    () => losesStartingWorker(studio, others),
  );

  await t.step(
    "an edge killed at its start: nothing is counted",
    () => losesStartingEdge(studio),
  );

  await t.step(
    "everything killed while it is made",
    () => losesEverything(studio),
  );

  await t.step(
    "killed in a download: the rest can be had",
    () => losesDownload(studio),
  );
});
