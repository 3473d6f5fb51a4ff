// Promise: a video ends once, and is charged once, whatever becomes of its engine, of
// Redis and of whoever asks; nobody but its owner can tell that it exists.
import assert from "node:assert/strict";
import { encodeMediaHead } from "@gateway/shared/bus/media_head";
import { mintKey } from "@gateway/shared/keys/key";
import * as record from "@gateway/shared/keys/record";
import { VIDEO_LIMITS } from "@gateway/shared/limits";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import type { EngineVideo, VideoRequest } from "@gateway/shared/openai/media";
import { monotonicNow } from "@gateway/shared/process/clock";
import { randomBytes } from "@gateway/shared/process/ids";
import {
  readUnits,
  startRedisWorld,
  usageCounted,
} from "../../../tests/support/admission_fixture.ts";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { callApi } from "../../../tests/support/chat_request.ts";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import { startTcpProxy } from "../../../tests/support/tcp_proxy.ts";
import { waitFor } from "../../../tests/support/wait_for.ts";
import type { AppDependencies } from "../app.ts";
import { CATALOG, startApp } from "../app_fixture.ts";
import { RunOutcome } from "../dispatch/outcome.ts";
import { WholeBody } from "../dispatch/request_body.ts";
import { LimitedAdmission } from "../limits/admission.ts";
import { Limiter } from "../limits/limiter.ts";
import { redisFailure } from "../limits/refusal.ts";
import { EDGE_SCRIPTS } from "../limits/scripts.ts";
import { VIDEO_SCRIPTS, VideoJobs } from "./jobs.ts";
import { VideoKeeper, type VideoKeeperOptions } from "./keeper.ts";

const MODEL = "simulated-video-1";
const KEY = mintKey(randomBytes);
const PROMPT = "a secret prompt";
const LOST_MS = 1_000;

type Reply = Partial<EngineVideo> | ErrorCode | "nothing";
type World = Awaited<ReturnType<typeof startRedisWorld>>;

const startWorld = () =>
  startRedisWorld({ scripts: [...EDGE_SCRIPTS, ...VIDEO_SCRIPTS] });
const isVideo = (request: object): request is VideoRequest =>
  "action" in request;

/** An edge on this Redis, whose workers say what `engine` says. */
async function startEdge(
  world: World,
  { sweepMs = 60_000, url, ...more }:
    & Partial<VideoKeeperOptions>
    & { sweepMs?: number; url?: string } = {},
) {
  const redis = await world.open(url);
  const log = createRecordingLog();
  const clocks = { now: monotonicNow, random: Math.random, log };
  const rig = {
    /** How far its clock is ahead. */
    aheadMs: 0,
    asked: [] as VideoRequest[],
    made: [] as number[],
    engine: (_asked: VideoRequest): Reply => ({}),
    /** The requests of its keys are stopped. */
    isStopped: false,
  };
  const limiter = new Limiter({ redis, ...clocks, deadlineMs: 10_000 });
  const dispatcher: AppDependencies["dispatcher"] = {
    isStoppedSince: () => rig.isStopped,
    start({ body }, sink, onEnded) {
      const bytes = body instanceof WholeBody ? body.bytes : null;
      const request = JSON.parse(new TextDecoder().decode(bytes ?? undefined));
      assert.ok(isVideo(request));
      rig.asked.push(request);
      const outcome = Object.assign(new RunOutcome(), { dispatchMs: 1 });
      queueMicrotask(() => {
        const reply = rig.engine(request);
        if (typeof reply === "string" && reply !== "nothing") {
          const error = new ApiError(reply, "It said so.");
          sink.onError(error);
          return onEnded(Object.assign(outcome, { kind: "failed", error }));
        }
        const video = reply === "nothing" ? null : {
          backend: "simulator",
          id: "theirs",
          status: "queued",
          progress: 0,
          completed_at: null,
          expires_at: null,
          seconds: null,
          size: null,
          error: null,
          ...reply,
        };
        const head = encodeMediaHead({ content_type: "application/json" });
        const answer = head + JSON.stringify(video);
        sink.onPayload(new TextEncoder().encode(answer), 1);
        sink.onEnd();
        onEnded(outcome);
      });
      return { delivered: () => {}, cancel: () => {} };
    },
  };
  const jobs = new VideoJobs({ redis, sweepMs });
  const videos = new VideoKeeper({
    jobs,
    limiter,
    dispatcher,
    catalog: CATALOG,
    log,
    wallNow: () => Date.now() + rig.aheadMs,
    onMade: (_model, seconds) => rig.made.push(seconds),
    limits: { freshMs: 0, engineLostMs: LOST_MS, lookMs: 20 },
    ...more,
  });
  /** Whose key the next request has. */
  let principal: record.Principal = { keyId: "", ownerId: "" };
  const app = await startApp({
    videos,
    dispatcher,
    ...clocks,
    keys: { find: () => Promise.resolve(principal) },
    admission: new LimitedAdmission({
      limiter,
      ...clocks,
      onUnknown: () => {},
    }),
  });
  const ask = async (
    key: record.Principal,
    method: string,
    path: string,
    body?: object,
  ) => {
    principal = key;
    const url = `${app.origin}/v1/videos${path}`;
    const response = await callApi(url, KEY, { body, method });
    return { status: response.status, body: await response.json() };
  };
  return Object.assign(rig, {
    ask,
    videos,
    log,
    redis,
    /** Starts a video, and returns its id. */
    async begin(key: record.Principal): Promise<string> {
      const asked = { model: MODEL, prompt: PROMPT, seconds: "8" };
      const { status, body } = await ask(key, "POST", "", asked);
      assert.equal(status, 200, JSON.stringify(body));
      return body.id;
    },
    async [Symbol.asyncDispose]() {
      await app[Symbol.asyncDispose]();
      await limiter.leases.stop(1_000);
    },
  });
}

interface Stage {
  world: World;
  edge: Awaited<ReturnType<typeof startEdge>>;
  key: record.Principal;
}

/** A test with one edge and a key for videos. */
function test(name: string, body: (stage: Stage) => Promise<void>): void {
  Deno.test(name, async () => {
    await using world = await startWorld();
    await using edge = await startEdge(world);
    await body({ world, edge, key: await world.addKey({ scopes: "video" }) });
  });
}

/** Videos that hold a slot of a key and its owner. */
function slotsHeld(world: World, key: record.Principal): Promise<number[]> {
  const owners = record.ownerVideoLeaseKey(key.ownerId);
  const names = [record.videoLeaseKey(key), owners];
  return Promise.all(
    names.map(async (name) => Number(await world.command("ZCARD", name))),
  );
}

const slotsFreed = (world: World, key: record.Principal) =>
  waitFor(
    async () => (await slotsHeld(world, key)).every((held) => held === 0),
    { what: "free slots" },
  );

const secondsCounted = async (world: World, key: record.Principal) =>
  (await usageCounted(world, key)).videoSeconds;

const nsfw = { code: "nsfw", message: "No." };
/**
 * What its engine says after so long, and what its client sees; seconds if it has
 * completed, its error if it has failed.
 */
type End = [status: string, end?: number | RegExp, aheadMs?: number];
const ends: [what: string, reply: Reply, ...End][] = [
  ["waits", { progress: 3 }, "queued"],
  ["runs", { status: "in_progress" }, "in_progress"],
  [
    "has a file that expires before it is made",
    ...[{ status: "in_progress", expires_at: 1 }, "in_progress"] as const,
  ],
  ["is done", { status: "completed" }, "completed", 8],
  [
    "is longer than asked for",
    ...[{ status: "completed", seconds: "8.4" }, "completed", 9] as const,
  ],
  ["fails", { status: "failed", error: nsfw }, "failed", /^nsfw No\.$/],
  ["is forgotten", "not_found", "failed", /no longer has/],
  ["is out of reach", "upstream_unreachable", "queued"],
  [
    "is out of reach for too long",
    ...["upstream_timeout", "failed", /cannot be reached/, LOST_MS] as const,
  ],
  ["has no worker for long", "no_worker", "queued", 0, LOST_MS],
  [
    "takes longer than a day",
    ...[{}, "failed", /in time/, VIDEO_LIMITS.jobMs + 1_000] as const,
  ],
];

test("a video that is finished at once is first answered as one that has not begun", async ({ edge, key }) => {
  edge.engine = () => ({ status: "completed", progress: 100, completed_at: 1 });
  const asked = { model: MODEL, prompt: PROMPT, seconds: "8" };
  const { body } = await edge.ask(key, "POST", "", asked);
  const { status, progress, completed_at } = body;
  assert.deepEqual([status, progress, completed_at], ["queued", 0, null]);
  const { body: later } = await edge.ask(key, "GET", `/${body.id}`);
  assert.deepEqual([later.status, later.progress], ["completed", 100]);
});

Deno.test("how a video ends, and what it costs", async (t) => {
  await using world = await startWorld();
  await using edge = await startEdge(world);
  for (const [what, reply, status, end = 0, aheadMs = 0] of ends) {
    const seconds = typeof end === "number" ? end : 0;
    await t.step(`it ${what}`, async () => {
      const key = await world.addKey({ scopes: "video" });
      edge.engine = () => ({});
      edge.aheadMs = 0;
      const id = await edge.begin(key);
      assert.deepEqual(await slotsHeld(world, key), [1, 1]);
      edge.engine = () => reply;
      await edge.ask(key, "GET", `/${id}`);
      edge.aheadMs = aheadMs;
      const { body } = await edge.ask(key, "GET", `/${id}`);
      assert.equal(body.status, status, JSON.stringify(body));
      assert.equal(Object.keys(body).length, 13);
      const said = body.error && `${body.error.code} ${body.error.message}`;
      if (typeof end === "number") assert.equal(said, null);
      else assert.match(said, end);
      const isOver = /^(completed|failed)$/.test(status);
      assert.deepEqual(await slotsHeld(world, key), isOver ? [0, 0] : [1, 1]);
      assert.equal(await secondsCounted(world, key), seconds);
      assert.deepEqual(edge.made.splice(0), seconds === 0 ? [] : [seconds]);
      // Whatever the engine says from now on.
      if (!isOver) return;
      edge.engine = () => ({ status: "completed", seconds: "12" });
      const again = await edge.ask(key, "GET", `/${id}`);
      assert.deepEqual(again.body, body);
      assert.equal(await secondsCounted(world, key), seconds);
    });
  }
  const script = `local all = {}
    for _, key in ipairs(redis.call('KEYS', 'job:*')) do
      all[#all + 1] = table.concat(redis.call('HGETALL', key), ' ')
    end
    return table.concat(all, ' ')`;
  const kept = String(await world.command("EVAL", script, "0"));
  assert.match(kept, /theirs/);
  assert.ok(!kept.includes(PROMPT), "the registry keeps no prompt");
});

test("a video that its engine refuses holds no slot", async ({ world, edge, key }) => {
  const rows: [reply: Reply, status: number][] = [
    ["invalid_request", 400],
    ["overloaded", 503],
    ["nothing", 502],
  ];
  for (const [reply, status] of rows) {
    edge.engine = () => reply;
    const asked = { model: MODEL, prompt: PROMPT };
    const refused = await edge.ask(key, "POST", "", asked);
    assert.equal(refused.status, status, JSON.stringify(refused.body));
  }
  const { body } = await edge.ask(key, "GET", "");
  assert.deepEqual(body.data, []);
  await slotsFreed(world, key);
});

test("a video whose backend is not in the list fails, unless the list is just older than those of others", async ({ edge, key }) => {
  edge.engine = () => ({ backend: "another" });
  const id = await edge.begin(key);
  const { body: first } = await edge.ask(key, "GET", `/${id}`);
  assert.equal(first.status, "queued");
  edge.aheadMs = LOST_MS;
  const { body } = await edge.ask(key, "GET", `/${id}`);
  assert.equal(body.status, "failed");
  assert.match(body.error.message, /was removed/);
  assert.equal(edge.asked.length, 1);
});

Deno.test("one edge looks after a video that nobody asks for, also if the edge that began it is gone", async () => {
  await using world = await startWorld();
  const key = await world.addKey({ scopes: "video" });
  let id = "";
  {
    await using gone = await startEdge(world, { sweepMs: 100 });
    id = await gone.begin(key);
  }
  await using one = await startEdge(world, { sweepMs: 100 });
  await using other = await startEdge(world, { sweepMs: 100 });
  using started = new DisposableStack();
  for (const edge of [one, other]) {
    edge.engine = () => ({ status: "completed" });
    started.defer(edge.videos.start());
  }
  const isReleased = async () =>
    await world.command("ZCARD", record.DUE_JOBS_KEY) === 0;
  await waitFor(isReleased, { what: "the video to end" });
  assert.equal(await secondsCounted(world, key), 8);
  assert.equal(one.asked.length + other.asked.length, 1);
  const { body } = await one.ask(key, "GET", `/${id}`);
  assert.equal(body.status, "completed");
  // One that was deleted or has expired needs nobody either.
  const another = await one.begin(key);
  await world.command("DEL", record.jobKey(key.ownerId, another));
  await waitFor(isReleased, { what: "nothing to be due" });
});

Deno.test("a video that cannot be registered is deleted at its engine, and holds nothing, also if Redis is away for long", async () => {
  await using world = await startWorld();
  await using proxy = startTcpProxy(world.redis.port);
  const lost = new RedisUnavailableError("connection_lost", "no answer");
  await using edge = await startEdge(world, {
    url: `redis://${proxy.server}`,
    jobs: new class extends VideoJobs {
      override begin() {
        proxy.set({ refuse: true });
        proxy.cut();
        return Promise.reject(redisFailure(lost));
      }
    }({ redis: world.link }),
  });
  const key = await world.addKey({
    scopes: "video",
    limits: { videoSecondsPerDay: 20 },
  });
  const asked = { model: MODEL, prompt: PROMPT, seconds: "8" };
  const { status, body } = await edge.ask(key, "POST", "", asked);
  assert.equal(status, 503, JSON.stringify(body));
  await waitFor(() => edge.asked.length === 2, { what: "the deletion" });
  assert.partialDeepStrictEqual(edge.asked[1], {
    action: "delete",
    backend: "simulator",
    id: "theirs",
  });
  await waitFor(() => edge.redis.state === "offline", { what: "the outage" });
  proxy.set({});
  await slotsFreed(world, key);
  const made = await readUnits(
    world,
    record.limiterKey(key),
    "videoSeconds",
  );
  assert.equal(made?.count, 0);
  assert.ok(!JSON.stringify(edge.log.lines).includes(PROMPT));
});

test("an edge whose clock was ahead leaves no video that nobody asks about", async ({ edge, key }) => {
  edge.aheadMs = 3_600_000;
  const id = await edge.begin(key);
  edge.engine = () => "upstream_unreachable";
  await edge.ask(key, "GET", `/${id}`);
  edge.aheadMs = 0;
  await edge.ask(key, "GET", `/${id}`);
  assert.equal(edge.asked.length, 3);
  edge.aheadMs = LOST_MS;
  const { body } = await edge.ask(key, "GET", `/${id}`);
  assert.equal(body.status, "failed");
});

test("clients that ask for a video at the same time cost its engine one question", async ({ edge, key }) => {
  const id = await edge.begin(key);
  const job = await edge.videos.find(key.ownerId, id) ?? assert.fail();
  for (const questions of [1, 2]) {
    edge.asked = [];
    edge.engine = () => ({ progress: questions });
    const seen = await Promise.all(
      Array.from({ length: 5 * questions }, () => edge.videos.refresh(job)),
    );
    assert.ok(seen.every((each) => each?.progress === questions));
    assert.equal(edge.asked.length, 1);
  }
});

test("a key that is revoked while a video is looked up downloads nothing", async ({ edge, key }) => {
  const id = await edge.begin(key);
  edge.engine = () => {
    edge.isStopped = true;
    return { status: "completed" };
  };
  const { status, body } = await edge.ask(key, "GET", `/${id}/content`);
  assert.equal(body.error.code, "key_revoked", JSON.stringify(body));
  assert.equal(status, 403);
  assert.ok(edge.asked.every(({ action }) => action !== "content"));
});

test("deleting: at the engine first; what had not ended costs nothing if that has deleted it", async ({ world, edge, key }) => {
  type Row = [running: Reply, deleting: Reply, status: number, cost: number];
  const rows: Row[] = [
    [{ status: "in_progress" }, "nothing", 200, 0],
    [{ status: "in_progress" }, "upstream_error", 502, 0],
    [{ status: "completed" }, "nothing", 200, 8],
    ["not_found", "nothing", 200, 8],
    // It cannot delete, and may go on making the video.
    [{ status: "in_progress" }, "not_found", 200, 16],
    [{ status: "completed" }, "not_found", 200, 24],
  ];
  for (const [running, deleting, status, seconds] of rows) {
    edge.engine = () => ({});
    const id = await edge.begin(key);
    edge.engine = ({ action }) => action === "delete" ? deleting : running;
    const deleted = await edge.ask(key, "DELETE", `/${id}`);
    assert.equal(deleted.status, status);
    const { status: left } = await edge.ask(key, "GET", `/${id}`);
    assert.equal(left, status === 200 ? 404 : 200);
    assert.equal(await secondsCounted(world, key), seconds);
  }
  assert.deepEqual(await slotsHeld(world, key), [1, 1]);
});

test("a page shows the videos of the owner that the key may see, and no others", async ({ world, edge, key }) => {
  const stranger = await world.addKey({ scopes: "video" });
  const sister = await world.addKey({
    scopes: "video",
    owner: key.ownerId,
    models: "another-model",
  });
  const ids: string[] = [];
  for (let i = 0; i < 4; i += 1) {
    edge.aheadMs = i;
    ids.push(await edge.begin(key));
  }
  const [first = "", second = "", third = "", fourth = ""] = ids;
  // Its record has expired, not yet its place in the index.
  await world.command("DEL", record.jobKey(key.ownerId, second));
  const rows: [query: string, ids: string[], hasMore: boolean][] = [
    ["", [fourth, third, first], false],
    ["?limit=3", [fourth, third, first], false],
    ["?limit=2", [fourth, third], true],
    ["?limit=0", [], true],
    ["?order=asc&limit=1", [first], true],
    [`?order=asc&after=${first}`, [third, fourth], false],
    [`?after=${second}`, [first], false],
    [`?after=${first}`, [], false],
  ];
  for (const [query, expected, hasMore] of rows) {
    const { body } = await edge.ask(key, "GET", query);
    const listed = body.data.map(({ id }: { id: string }) => id);
    assert.deepEqual(listed, expected, query);
    assert.equal(body.has_more, hasMore, query);
    assert.equal(body.first_id, expected[0] ?? null);
    assert.equal(body.last_id, expected.at(-1) ?? null);
  }
  const unknown = await edge.ask(key, "GET", `/video_${"0".repeat(32)}`);
  const asks = [
    ["GET", ""],
    ["DELETE", ""],
    ["GET", "/content"],
    ["POST", "/remix", { prompt: "x" }],
  ] as const;
  for (const other of [stranger, sister]) {
    assert.deepEqual((await edge.ask(other, "GET", "")).body.data, []);
    for (const [method, part, body] of asks) {
      const seen = await edge.ask(other, method, `/${first}${part}`, body);
      assert.deepEqual(seen, unknown, `${method} ${part}`);
    }
  }
  const { status } = await edge.ask(stranger, "GET", `?after=${first}`);
  assert.equal(status, 400);
});
