import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { ALL_FORMATS, BufferSource, Input } from "mediabunny";
import { assertRefused, bytesOf, startMedia } from "./ask_media_fixture.ts";
import { pictureOf } from "./picture.ts";

const model = "simulated-video-1";
/** A job that is ready at once. */
const prompt = "A fox [simulator: video takes 0 s]";
const ready = { model, prompt, size: "96x64" };

/** A simulator whose clock stands still until it is set. */
function startVideos() {
  let now = 1_800_000_000_000;
  const simulator = startMedia({ now: () => now });
  const call = async (method: string, path: string, headers = {}) => {
    const url = `${simulator.url}/videos${path}`;
    const response = await fetch(url, { method, headers });
    const { status, headers: head } = response;
    return { status, head, ...await bytesOf(response) };
  };
  const post = (change: object) =>
    simulator.post("/videos", { ...ready, ...change });
  return {
    ...{ ...simulator, call, post },
    json: async (path: string, method = "GET") =>
      JSON.parse((await call(method, path)).bytes.toString()),
    create: async (change: object = {}) => await (await post(change)).json(),
    wait: (seconds: number) => now += seconds * 1_000,
  };
}

Deno.test("a video job advances with time, with every member of OpenAI's object", async () => {
  await using simulator = startVideos();
  const job = await simulator.create({ prompt: "A fox" });
  assert.match(job.id, /^video_[0-9a-f]{32}$/);
  const expected = {
    ...{ id: job.id, object: "video", model, prompt: "A fox", seconds: "4" },
    ...{ status: "queued", progress: 0, size: "96x64", error: null },
    ...{ created_at: 1_800_000_000, expires_at: null },
    ...{ completed_at: null, remixed_from_video_id: null },
  };
  assert.deepEqual(job, expected);
  const completed_at = 1_800_000_002;
  const states: [wait: number, change: object, content: number][] = [
    [0.4, { status: "queued", progress: 20 }, 404],
    [0.2, { status: "in_progress", progress: 30 }, 404],
    [1.3, { status: "in_progress", progress: 95 }, 404],
    [0.2, { status: "completed", progress: 100, completed_at }, 200],
  ];
  for (const [wait, change, content] of states) {
    simulator.wait(wait);
    const state = await simulator.json(`/${job.id}`);
    assert.deepEqual(state, { ...expected, ...change });
    const { status } = await simulator.call("GET", `/${job.id}/content`);
    assert.equal(status, content);
  }
});

Deno.test("a video takes as long, and fails, as its prompt asks", async () => {
  await using simulator = startVideos();
  const asked = async (phrase: string) =>
    await simulator.create({ prompt: `A fox [simulator: ${phrase}]` });
  const slow = await asked("video takes 10 s");
  const failing = await asked("video fails");
  simulator.wait(9);
  const { status, progress } = await simulator.json(`/${slow.id}`);
  assert.deepEqual([status, progress], ["in_progress", 90]);
  const failed = await simulator.json(`/${failing.id}`);
  const outcome = [failed.status, failed.error.code];
  assert.deepEqual(outcome, ["failed", "video_generation_failed"]);
  const content = await simulator.call("GET", `/${failing.id}/content`);
  assert.equal(content.status, 404);
  assert.equal((await asked("error 429")).error.type, "rate_limit_error");
  const { id } = await asked("video takes 0 s, cut after 0 tokens");
  const cut = await simulator.call("GET", `/${id}/content`);
  assert.deepEqual([cut.isCut, cut.bytes.length], [true, 0]);
});

Deno.test("the official client creates a video from a form and downloads an MP4 file", async () => {
  await using simulator = startVideos();
  const { videos } = simulator.client;
  const png = pictureOf({ words: "photo", width: 32, height: 32 });
  const input_reference = new File([Buffer.from(png)], "a.png");
  const { id, size } = await videos.create({ model, prompt, input_reference });
  assert.equal(size, "720x1280");
  const image = await videos.downloadContent(id, { variant: "thumbnail" });
  const thumbnail = Buffer.from(await image.arrayBuffer());
  assert.equal(thumbnail.readUInt32BE(20), 1_280);
  const small = await simulator.create();
  const response = await videos.downloadContent(small.id);
  assert.equal(response.headers.get("content-type"), "video/mp4");
  const source = new BufferSource(await response.arrayBuffer());
  const input = new Input({ source, formats: ALL_FORMATS });
  const track = await input.getPrimaryVideoTrack();
  const found = [track?.codec, track?.codedWidth, track?.codedHeight];
  assert.deepEqual(found, ["avc", 96, 64]);
  assert.equal(await input.computeDuration(), 4);
  const { id: _, ...remix } = await videos.remix(small.id, { prompt: "A hen" });
  assert.deepEqual(remix, {
    ...{ object: "video", model, prompt: "A hen", seconds: "4", size: "96x64" },
    ...{ status: "queued", progress: 0, error: null, completed_at: null },
    ...{ created_at: 1_800_000_000, expires_at: null },
    remixed_from_video_id: small.id,
  });
});

Deno.test("the content of a video has ranges", async () => {
  await using simulator = startVideos();
  const path = `/${(await simulator.create()).id}/content`;
  const whole = (await simulator.call("GET", path)).bytes;
  const { length } = whole;
  const ranges: [range: string, status: number, from: number, to: number][] = [
    ["bytes=0-99", 206, 0, 100],
    ["bytes=100-", 206, 100, length],
    ["bytes=-10", 206, length - 10, length],
    [`bytes=-${length + 1}`, 206, 0, length],
    [`bytes=0-${length + 5}`, 206, 0, length],
    ["lines=1-2", 200, 0, length],
  ];
  for (const [range, status, from, to] of ranges) {
    const answer = await simulator.call("GET", path, { range });
    assert.equal(answer.status, status, range);
    assert.deepEqual(answer.bytes, whole.subarray(from, to));
    const named = status === 206 ? `bytes ${from}-${to - 1}/${length}` : null;
    assert.equal(answer.head.get("content-range"), named);
    assert.equal(answer.head.get("content-length"), `${to - from}`);
  }
  const beyond = { range: `bytes=${length}-` };
  assert.equal((await simulator.call("GET", path, beyond)).status, 416);
});

Deno.test("a deleted video is unknown, and so is the oldest of more than a hundred", async () => {
  await using simulator = startVideos();
  const statusOf = async (id: string) =>
    (await simulator.call("GET", `/${id}`)).status;
  const { id } = await simulator.create();
  const deleted = { id, object: "video.deleted", deleted: true };
  assert.deepEqual(await simulator.json(`/${id}`, "DELETE"), deleted);
  assert.equal(await statusOf(id), 404);
  const ids: string[] = [];
  for (let made = 0; made < 101; made++) {
    ids.push((await simulator.create()).id);
  }
  const [first = "", second = ""] = ids;
  assert.deepEqual([await statusOf(first), await statusOf(second)], [404, 200]);
});

Deno.test("a wrong request for videos is refused", async () => {
  await using simulator = startVideos();
  const { id } = await simulator.create();
  await assertRefused(simulator.post, [
    [{ model: "sora-2" }, 404, "model"],
    [{ prompt: "" }, 400, "prompt"],
    [{ seconds: "5" }, 400, "seconds"],
    [{ size: "95x64" }, 400, "size"],
    [{ size: "8x64" }, 400, "size"],
    [{ input_reference: new File(["no picture"], "a.png") }, 400, "image"],
  ]);
  const calls: [method: string, path: string, status: number][] = [
    ["GET", "/video_0", 404],
    ["DELETE", "/video_0", 404],
    ["PUT", `/${id}`, 404],
    ["GET", `/${id}/nothing`, 404],
    ["GET", `/${id}/content?variant=spritesheet`, 400],
    ["GET", "", 404],
    ["POST", `/${id}/remix`, 400],
  ];
  for (const [method, path, status] of calls) {
    const answer = await simulator.call(method, path);
    assert.equal(answer.status, status, `${method} ${path}`);
  }
});
