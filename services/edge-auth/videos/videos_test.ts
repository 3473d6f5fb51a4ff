// Promise: a video ends once, and is charged once, whatever becomes of its engine, of
// Redis and of whoever asks; nobody but its owner can tell that it exists.
import assert from "node:assert/strict";
import * as record from "@gateway/shared/keys/record";
import { VIDEO_LIMITS } from "@gateway/shared/limits";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { readUnits } from "../../../tests/support/limits/admission_fixture.ts";
import { startTcpProxy } from "../../../tests/support/servers/tcp_proxy.ts";
import { until, waitFor } from "../../../tests/support/wait_for.ts";
import { redisFailure } from "../limits/refusal.ts";
import { type VideoJob, VideoJobs } from "./jobs.ts";
import {
  LOST_MS,
  MODEL,
  PROMPT,
  type Reply,
  secondsCounted,
  slotsFreed,
  slotsHeld,
  startWorld,
  test,
  VideoEdge,
} from "./videos_fixture.ts";

const nsfw = { code: "nsfw", message: "No." };
/** How a video goes on after it was begun. */
interface Course {
  readonly what: string;
  /** What its engine says. */
  readonly reply: Reply;
  /** When it is asked again, in ms after its beginning. */
  readonly afterMs?: number;
  /** What the client sees then. */
  readonly status: "queued" | "in_progress" | "completed" | "failed";
  /** The seconds charged. */
  readonly seconds?: number;
  /** The error that the client sees: its code and message. */
  readonly error?: RegExp;
}

const COURSES: Course[] = [
  { what: "waits", reply: { progress: 3 }, status: "queued" },
  { what: "runs", reply: { status: "in_progress" }, status: "in_progress" },
  {
    what: "has a file that expires before it is made",
    reply: { status: "in_progress", expires_at: 1 },
    status: "in_progress",
  },
  {
    what: "is done",
    reply: { status: "completed" },
    status: "completed",
    seconds: 8,
  },
  {
    what: "is longer than asked for",
    reply: { status: "completed", seconds: "8.4" },
    status: "completed",
    seconds: 9,
  },
  {
    what: "fails",
    reply: { status: "failed", error: nsfw },
    status: "failed",
    error: /^nsfw No\.$/,
  },
  {
    what: "is forgotten",
    reply: "not_found",
    status: "failed",
    error: /no longer has/,
  },
  { what: "is out of reach", reply: "upstream_unreachable", status: "queued" },
  {
    what: "is out of reach for too long",
    reply: "upstream_timeout",
    afterMs: LOST_MS,
    status: "failed",
    error: /cannot be reached/,
  },
  {
    what: "has no worker for long",
    reply: "no_worker",
    afterMs: LOST_MS,
    status: "queued",
  },
  {
    what: "takes longer than a day",
    reply: {},
    afterMs: VIDEO_LIMITS.jobMs + 1_000,
    status: "failed",
    error: /in time/,
  },
];

test("a video that is finished at once is first answered as one that has not begun", async ({ edge, key }) => {
  edge.engine.reply = () => ({
    status: "completed",
    progress: 100,
    completed_at: 1,
  });
  const fields = { model: MODEL, prompt: PROMPT, seconds: "8" };
  const { body } = await edge.ask(key, { method: "POST", body: fields });
  const { status, progress, completed_at } = body;
  assert.deepEqual([status, progress, completed_at], ["queued", 0, null]);
  const { body: later } = await edge.ask(key, { path: `/${body.id}` });
  assert.deepEqual([later.status, later.progress], ["completed", 100]);
});

Deno.test("how a video ends, and what it costs", async (t) => {
  await using world = await startWorld();
  await using edge = await VideoEdge.start(world);
  for (const course of COURSES) {
    const { reply, status, seconds = 0, error, afterMs = 0 } = course;
    await t.step(`it ${course.what}`, async () => {
      const key = await world.addKey({ scopes: "video" });
      edge.engine.reply = () => ({});
      edge.aheadMs = 0;
      const id = await edge.begin(key);
      assert.deepEqual(await slotsHeld(world, key), [1, 1]);
      edge.engine.reply = () => reply;
      await edge.ask(key, { path: `/${id}` });
      edge.aheadMs = afterMs;
      const { body } = await edge.ask(key, { path: `/${id}` });
      assert.equal(body.status, status, JSON.stringify(body));
      assert.equal(Object.keys(body).length, 13);
      const shown = body.error && `${body.error.code} ${body.error.message}`;
      if (error === undefined) assert.equal(shown, null);
      else assert.match(shown, error);
      const isOver = /^(completed|failed)$/.test(status);
      assert.deepEqual(await slotsHeld(world, key), isOver ? [0, 0] : [1, 1]);
      assert.equal(await secondsCounted(world, key), seconds);
      assert.deepEqual(edge.charges.splice(0), seconds === 0 ? [] : [seconds]);
      // Whatever the engine says from now on.
      if (!isOver) return;
      edge.engine.reply = () => ({ status: "completed", seconds: "12" });
      const again = await edge.ask(key, { path: `/${id}` });
      assert.deepEqual(again.body, body);
      assert.equal(await secondsCounted(world, key), seconds);
    });
  }
  const script = `local all = {}
    for _, key in ipairs(redis.call('KEYS', 'job:*')) do
      all[#all + 1] = table.concat(redis.call('HGETALL', key), ' ')
    end
    return table.concat(all, ' ')`;
  const jobs = String(await world.command("EVAL", script, "0"));
  assert.match(jobs, /theirs/);
  assert.ok(!jobs.includes(PROMPT), "the registry keeps no prompt");
});

test("a video that its engine refuses holds no slot", async ({ world, edge, key }) => {
  const rows: [reply: Reply, status: number][] = [
    ["invalid_request", 400],
    ["overloaded", 503],
    ["nothing", 502],
  ];
  for (const [reply, status] of rows) {
    edge.engine.reply = () => reply;
    const fields = { model: MODEL, prompt: PROMPT };
    const refused = await edge.ask(key, { method: "POST", body: fields });
    assert.equal(refused.status, status, JSON.stringify(refused.body));
  }
  const { body } = await edge.ask(key, {});
  assert.deepEqual(body.data, []);
  await slotsFreed(world, key);
});

test("a video whose backend is not in the list fails, unless the list is just older than those of others", async ({ edge, key }) => {
  edge.engine.reply = () => ({ backend: "another" });
  const id = await edge.begin(key);
  const { body: first } = await edge.ask(key, { path: `/${id}` });
  assert.equal(first.status, "queued");
  edge.aheadMs = LOST_MS;
  const { body } = await edge.ask(key, { path: `/${id}` });
  assert.equal(body.status, "failed");
  assert.match(body.error.message, /was removed/);
  assert.equal(edge.engine.requests.length, 1);
});

Deno.test("one edge looks after a video that nobody asks for, also if the edge that began it is gone", async () => {
  await using world = await startWorld();
  const key = await world.addKey({ scopes: "video" });
  let id = "";
  {
    await using gone = await VideoEdge.start(world, { sweepMs: 100 });
    id = await gone.begin(key);
  }
  await using one = await VideoEdge.start(world, { sweepMs: 100 });
  await using other = await VideoEdge.start(world, { sweepMs: 100 });
  using started = new DisposableStack();
  for (const edge of [one, other]) {
    edge.engine.reply = () => ({ status: "completed" });
    started.defer(edge.videos.start());
  }
  const isReleased = async () =>
    await world.command("ZCARD", record.DUE_JOBS_KEY) === 0;
  await waitFor(isReleased, { what: "the video to end" });
  assert.equal(await secondsCounted(world, key), 8);
  assert.equal(one.engine.requests.length + other.engine.requests.length, 1);
  const { body } = await one.ask(key, { path: `/${id}` });
  assert.equal(body.status, "completed");
  // One that was deleted or has expired needs nobody either.
  const another = await one.begin(key);
  await world.command("DEL", record.jobKey(key.ownerId, another));
  await waitFor(isReleased, { what: "nothing to be due" });
});

Deno.test("a video that cannot be registered is deleted at its engine, and holds nothing", async () => {
  await using world = await startWorld();
  await using proxy = startTcpProxy(world.redis.port);
  const lost = new RedisUnavailableError("connection_lost", "no answer");
  await using edge = await VideoEdge.start(world, {
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
  const ask = { model: MODEL, prompt: PROMPT, seconds: "8" };
  const { status, body } = await edge.ask(key, { method: "POST", body: ask });
  assert.equal(status, 503, JSON.stringify(body));
  await until(() => edge.engine.requests.length === 2);
  assert.partialDeepStrictEqual(edge.engine.requests[1], {
    action: "delete",
    backend: "simulator",
    id: "theirs",
  });
  await waitFor(() => edge.redis.state === "offline", { what: "the outage" });
  proxy.set({});
  await slotsFreed(world, key);
  const units = await readUnits(
    world,
    record.limiterKey(key),
    "videoSeconds",
  );
  assert.equal(units?.count, 0);
  assert.ok(!JSON.stringify(edge.log.lines).includes(PROMPT));
});

test("an edge whose clock was ahead leaves no video that nobody asks about", async ({ edge, key }) => {
  edge.aheadMs = 3_600_000;
  const id = await edge.begin(key);
  edge.engine.reply = () => "upstream_unreachable";
  await edge.ask(key, { path: `/${id}` });
  edge.aheadMs = 0;
  await edge.ask(key, { path: `/${id}` });
  assert.equal(edge.engine.requests.length, 3);
  edge.aheadMs = LOST_MS;
  const { body } = await edge.ask(key, { path: `/${id}` });
  assert.equal(body.status, "failed");
});

test("a video that is asked for in frames is charged these, whatever its server states", async ({ world, edge, key }) => {
  const frames = { num_frames: 2_400, fps: 24 };
  const fields = { model: MODEL, prompt: PROMPT, ...frames };
  const { body } = await edge.ask(key, { method: "POST", body: fields });
  edge.engine.reply = () => ({ status: "completed", seconds: "4" });
  await edge.ask(key, { path: `/${body.id}` });
  assert.deepEqual(edge.charges, [100]);
  assert.equal(await secondsCounted(world, key), 100);
});

test("clients that ask for a video at the same time cost its engine one question", async ({ edge, key }) => {
  const id = await edge.begin(key);
  const job = await edge.videos.find(key.ownerId, id) ?? assert.fail();
  for (const questions of [1, 2]) {
    edge.engine.requests = [];
    edge.engine.reply = () => ({ progress: questions });
    const states = await Promise.all(
      Array.from({ length: 5 * questions }, () => edge.videos.refresh(job)),
    );
    assert.ok(states.every((each) => each?.progress === questions));
    assert.equal(edge.engine.requests.length, 1);
  }
});

test("an edge asks about a number of videos of an owner at once, and shows others as last seen", async ({ edge, key }) => {
  const id = await edge.begin(key);
  const job = await edge.videos.find(key.ownerId, id) ?? assert.fail();
  const principal = { ...key, ownerId: "own_other" };
  const jobs: VideoJob[] = Array.from(
    { length: VIDEO_LIMITS.askedMax + 1 },
    (_, at) => ({ ...job, id: `${id}_${at}` }),
  );
  const other = { ...job.reservation, principal };
  jobs.push({ ...job, id: `${id}_other`, reservation: other });
  edge.engine.requests = [];
  const states = await Promise.all(jobs.map((job) => edge.videos.refresh(job)));
  assert.equal(edge.engine.requests.length, VIDEO_LIMITS.askedMax + 1);
  assert.equal(states[VIDEO_LIMITS.askedMax], jobs[VIDEO_LIMITS.askedMax]);
});

test("a key that is revoked while a video is looked up downloads nothing", async ({ edge, key }) => {
  const id = await edge.begin(key);
  edge.engine.reply = () => {
    edge.engine.isStopped = true;
    return { status: "completed" };
  };
  const { status, body } = await edge.ask(key, { path: `/${id}/content` });
  assert.equal(body.error.code, "key_revoked", JSON.stringify(body));
  assert.equal(status, 403);
  assert.ok(edge.engine.requests.every(({ action }) => action !== "content"));
});

test("deleting: at the engine first; what had not ended costs nothing if that has deleted it", async ({ world, edge, key }) => {
  const isMaking: Reply = { status: "in_progress" };
  const isMade: Reply = { status: "completed" };
  /** `seconds`: what all of them have cost until then. */
  const rows: {
    running: Reply;
    deleting: Reply;
    status: number;
    seconds: number;
  }[] = [
    { running: isMaking, deleting: "nothing", status: 200, seconds: 0 },
    { running: isMaking, deleting: "upstream_error", status: 502, seconds: 0 },
    { running: isMade, deleting: "nothing", status: 200, seconds: 8 },
    { running: "not_found", deleting: "nothing", status: 200, seconds: 8 },
    // It cannot delete, and may go on making the video.
    { running: isMaking, deleting: "not_found", status: 200, seconds: 16 },
    { running: isMade, deleting: "not_found", status: 200, seconds: 24 },
  ];
  for (const { running, deleting, status, seconds } of rows) {
    edge.engine.reply = () => ({});
    const id = await edge.begin(key);
    edge.engine.reply = ({ action }) =>
      action === "delete" ? deleting : running;
    const deleted = await edge.ask(key, { method: "DELETE", path: `/${id}` });
    assert.equal(deleted.status, status);
    const { status: left } = await edge.ask(key, { path: `/${id}` });
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
  const rows: { query: string; expected: string[]; hasMore: boolean }[] = [
    { query: "", expected: [fourth, third, first], hasMore: false },
    { query: "?limit=3", expected: [fourth, third, first], hasMore: false },
    { query: "?limit=2", expected: [fourth, third], hasMore: true },
    { query: "?limit=0", expected: [], hasMore: true },
    { query: "?order=asc&limit=1", expected: [first], hasMore: true },
    {
      query: `?order=asc&after=${first}`,
      expected: [third, fourth],
      hasMore: false,
    },
    { query: `?after=${second}`, expected: [first], hasMore: false },
    { query: `?after=${first}`, expected: [], hasMore: false },
  ];
  for (const { query, expected, hasMore } of rows) {
    const { body } = await edge.ask(key, { path: query });
    const listed = body.data.map(({ id }: { id: string }) => id);
    assert.deepEqual(listed, expected, query);
    assert.equal(body.has_more, hasMore, query);
    assert.equal(body.first_id, expected[0] ?? null);
    assert.equal(body.last_id, expected.at(-1) ?? null);
  }
  const unknown = await edge.ask(key, { path: `/video_${"0".repeat(32)}` });
  const asks = [
    { method: "GET", part: "" },
    { method: "DELETE", part: "" },
    { method: "GET", part: "/content" },
    { method: "POST", part: "/remix", body: { prompt: "x" } },
  ];
  for (const other of [stranger, sister]) {
    assert.deepEqual((await edge.ask(other, {})).body.data, []);
    for (const { part, ...ask } of asks) {
      const path = `/${first}${part}`;
      const response = await edge.ask(other, { ...ask, path });
      assert.deepEqual(response, unknown, `${ask.method} ${part}`);
    }
  }
  const { status } = await edge.ask(stranger, { path: `?after=${first}` });
  assert.equal(status, 400);
});
