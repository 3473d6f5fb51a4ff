/**
 * Guarantee: OpenAI's SDK makes, watches, downloads, changes and deletes videos through
 * the gateway as it does with OpenAI, and each is counted once.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import OpenAI, { NotFoundError, RateLimitError } from "openai";
import { validatorOf } from "../support/api_document.ts";
import { usageCounted } from "../support/admission_fixture.ts";
import { startCluster } from "../support/cluster.ts";
import { testRedisLink } from "../support/redis_link.ts";
import { waitFor } from "../support/wait_for.ts";

const MODEL = "simulated-video-1";
/** Below OpenAI's sizes, so that the film is made soon. */
const SMALL = "128x128";
const isVideo = validatorOf("Video");
const isList = validatorOf("VideoList");

Deno.test("OpenAI's SDK makes videos through the gateway", async (t) => {
  await using cluster = await startCluster({ edges: 2 });
  const createKey = async (...more: string[]) => {
    const options = ["--description", "videos", "--json", ...more];
    const made = JSON.parse(await cluster.keys("create", ...options));
    return { id: String(made.id), key: String(made.key) };
  };
  const { id: keyId, key: apiKey } = await createKey("--scopes", "video");
  const baseURL = cluster.baseUrl();
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const call = (path: string, init: RequestInit = {}, key = apiKey) =>
    fetch(`${baseURL}${path}`, {
      ...init,
      headers: {
        authorization: `Bearer ${key}`,
        ...typeof init.body === "string" &&
          { "content-type": "application/json" },
        ...Object(init.headers),
      },
    });
  const create = (body: object) =>
    call("/videos", { method: "POST", body: JSON.stringify(body) });
  /** Polls at both edges in turn, as a proxy distributes requests. */
  const ended = async (id: string) => {
    let edge = 0;
    return await waitFor(async () => {
      edge = 1 - edge;
      const at = new OpenAI({ baseURL: cluster.baseUrl(edge), apiKey });
      const video = await at.videos.retrieve(id);
      assert.ok(isVideo(video), Deno.inspect(video));
      return /^(completed|failed)$/.test(video.status) ? video : undefined;
    }, { what: `${id} to end`, timeoutMs: 30_000, intervalMs: 200 });
  };
  let first = "";

  await t.step("a video is made from words and a picture", async () => {
    const made = await client.videos.create({
      ...{ model: MODEL, prompt: "A red kite", seconds: "4" },
      size: "1280x720",
    });
    assert.ok(isVideo(made), Deno.inspect(made));
    assert.match(made.id, /^video_[0-9a-f]{32}$/);
    assert.partialDeepStrictEqual(made, {
      ...{ model: MODEL, prompt: "A red kite", seconds: "4" },
      ...{ size: "1280x720", status: "queued", error: null },
    });
    const response = await client.videos.downloadContent(made.id)
      .catch((error: unknown) => error);
    assert.ok(response instanceof NotFoundError, Deno.inspect(response));
    const video = await ended(made.id);
    assert.equal(video.status, "completed");
    assert.equal(video.progress, 100);
    assert.ok((video.completed_at ?? 0) >= made.created_at);
    first = made.id;
  });

  await t.step("the film is downloaded, whole and in part", async () => {
    const whole = await client.videos.downloadContent(first);
    assert.equal(whole.headers.get("content-type"), "video/mp4");
    const film = Buffer.from(await whole.arrayBuffer());
    assert.equal(film.toString("latin1", 4, 8), "ftyp");
    assert.equal(whole.headers.get("content-length"), String(film.length));
    const size = film.length;
    const rows: [range: string, status: number, from: number, to: number][] = [
      ["bytes=0-9", 206, 0, 10],
      ["bytes=100-", 206, 100, size],
      ["bytes=-7", 206, size - 7, size],
      ["bytes=0-1,5-6", 200, 0, size],
      ["lines=1-2", 200, 0, size],
    ];
    for (const [range, status, from, to] of rows) {
      const part = await call(`/videos/${first}/content`, {
        headers: { range },
      });
      assert.equal(part.status, status, range);
      const expected = status === 206
        ? `bytes ${from}-${to - 1}/${size}`
        : null;
      assert.equal(part.headers.get("content-range"), expected);
      const bytes = Buffer.from(await part.arrayBuffer());
      assert.ok(bytes.equals(film.subarray(from, to)), range);
    }
    const beyond = { headers: { range: `bytes=${size}-` } };
    const refused = await call(`/videos/${first}/content`, beyond);
    assert.equal(refused.status, 416);
    assert.equal((await refused.json()).error.code, "range_not_satisfiable");
    const picture = await client.videos.downloadContent(first, {
      variant: "thumbnail",
    });
    assert.equal(picture.headers.get("content-type"), "image/png");
    await picture.body?.cancel();
  });

  await t.step("a video is remixed, listed in pages, deleted", async () => {
    const remix = await client.videos.remix(first, { prompt: "A blue kite" });
    assert.equal(remix.remixed_from_video_id, first);
    assert.equal((await ended(remix.id)).status, "completed");
    const photo = await client.videos.downloadContent(first, {
      variant: "thumbnail",
    });
    const file = new File([await photo.arrayBuffer()], "a.png", {
      type: "image/png",
    });
    const third = await client.videos.create({
      ...{ model: MODEL, prompt: "It flies away", input_reference: file },
      size: "1280x720",
    });
    const ids: string[] = [];
    for await (const { id } of client.videos.list({ limit: 2 })) ids.push(id);
    assert.deepEqual(ids, [third.id, remix.id, first]);
    const page = await call(`/videos?order=asc&limit=1&after=${first}`);
    const list = await page.json();
    assert.ok(isList(list), Deno.inspect(list));
    assert.partialDeepStrictEqual(list, {
      ...{ first_id: remix.id, last_id: remix.id, has_more: true },
    });
    assert.deepEqual(await client.videos.delete(third.id), {
      ...{ id: third.id, object: "video.deleted", deleted: true },
    });
    await assert.rejects(client.videos.retrieve(third.id), NotFoundError);
    const left = await client.videos.list();
    assert.deepEqual(left.data.map(({ id }) => id), [remix.id, first]);
  });

  await t.step("what is wrong is refused in OpenAI's form", async () => {
    const video = { model: MODEL, prompt: "A kite" };
    const noVideo = (await createKey("--scopes", "chat")).key;
    const reference = (image_url: string) =>
      create({ ...video, input_reference: { image_url } });
    const form = (name: string, value: string | File) => {
      const body = new FormData();
      for (const [field, text] of Object.entries(video)) {
        body.append(field, text);
      }
      body.append(name, value);
      return call("/videos", { method: "POST", body });
    };
    const large = new File([new Uint8Array(20 * 2 ** 20 + 1)], "a.png");
    const rows: [() => Promise<Response>, unknown[]][] = [
      [() => create({ ...video, seconds: "0" }), [400, "seconds"]],
      [() => create({ ...video, seconds: 4.5 }), [400, "seconds"]],
      [() => create({ ...video, seconds: "5" }), [400, "seconds"]],
      [() => create({ ...video, size: "wide" }), [400, "size"]],
      [() => create({ ...video, prompt: " " }), [400, "prompt"]],
      [() => create({ model: MODEL }), [400, "prompt"]],
      [() => create({ ...video, model: "none" }), [404, null]],
      [() => create({ ...video, model: "simulated-image-1" }), [404, null]],
      [() => reference("http://127.0.0.1/a.png"), [
        400,
        "input_reference.image_url",
      ]],
      [() => reference("data:image/png;base64,!"), [
        400,
        "input_reference.image_url",
      ]],
      [() => form("input_reference", "a text"), [400, "input_reference"]],
      [() => form("input_reference", large), [413, null]],
      [() => form("size", "huge"), [400, "size"]],
      [() => create({ ...video, prompt: "[simulator: error 503]" }), [
        503,
        null,
      ]],
      [() => call("/videos?limit=101"), [400, "limit"]],
      [() => call("/videos?order=up"), [400, "order"]],
      [() => call(`/videos?after=${"x".repeat(9)}`), [400, "after"]],
      [() => call(`/videos/${first}/content?variant=all`), [400, "variant"]],
      [() => call(`/videos/${first}/remix`, { method: "POST", body: "{}" }), [
        400,
        "prompt",
      ]],
      [() => call(`/videos/${first}`, {}, noVideo), [403, null]],
      [() => call(`/videos/${first}`, { method: "PUT" }), [405, null]],
      [() => call("/videos/video_none"), [404, null]],
      [() => call(`/videos/video_${"0".repeat(32)}`), [404, null]],
    ];
    for (const [ask, expected] of rows) {
      const response = await ask();
      const text = await response.text();
      const { error } = JSON.parse(text);
      assert.deepEqual([response.status, error.param ?? null], expected, text);
    }
    const ignored = await create({ ...video, size: SMALL, unknown: true });
    assert.equal(ignored.status, 200);
    await client.videos.delete((await ignored.json()).id);
  });

  await t.step("another owner's video is an unknown one", async () => {
    await cluster.owners("invite", "other@example.com");
    const { key } = await createKey(
      ...["--scopes", "video", "--owner", "other@example.com"],
    );
    const unknown = await call(`/videos/video_${"0".repeat(32)}`, {}, key);
    const body = await unknown.text();
    for (const part of ["", "/content"]) {
      const response = await call(`/videos/${first}${part}`, {}, key);
      assert.equal(response.status, 404);
      assert.equal(await response.text(), body);
    }
    const deleting = await call(`/videos/${first}`, { method: "DELETE" }, key);
    assert.equal(deleting.status, 404);
    await deleting.body?.cancel();
    const { data } = await (await call("/videos", {}, key)).json();
    assert.deepEqual(data, []);
    // The owner's other keys have them, and outlive the one that made them.
    const sister = await createKey("--scopes", "video");
    const seen = await call(`/videos/${first}`, {}, sister.key);
    assert.equal((await seen.json()).status, "completed");
  });

  await t.step(
    "limits count a video until it ends, on every edge",
    async () => {
      const { key } = await createKey(
        ...["--scopes", "video", "--video-jobs", "1"],
        ...["--video-seconds-per-day", "12"],
      );
      const at = (edge: number) =>
        new OpenAI({
          ...{ baseURL: cluster.baseUrl(edge), apiKey: key, maxRetries: 0 },
        }).videos;
      const film = (seconds: "4" | "8" | "12") => ({
        ...{ model: MODEL, prompt: "A kite", seconds },
        size: SMALL as "1280x720",
      });
      const isRefused = (says: RegExp) => (error: unknown) => {
        assert.ok(error instanceof RateLimitError, Deno.inspect(error));
        assert.match(error.message, says);
        return true;
      };
      const { id } = await at(0).create(film("12"));
      const slots = isRefused(/video seconds per day|videos at the same time/);
      await assert.rejects(at(1).create(film("4")), slots);
      await at(1).delete(id);
      const made = await at(0).create(film("8"));
      await assert.rejects(
        at(1).create(film("4")),
        isRefused(/at the same time/),
      );
      await waitFor(
        async () => (await at(1).retrieve(made.id)).status === "completed",
        { what: "the film", timeoutMs: 30_000, intervalMs: 200 },
      );
      const seconds = isRefused(/video seconds per day/);
      await assert.rejects(at(0).create(film("8")), seconds);
      await at(1).delete((await at(0).create(film("4"))).id);
    },
  );

  await t.step("each is counted once, also if nobody asks", async () => {
    const redis = testRedisLink({ url: cluster.state.redis_url });
    await redis.ready(5_000);
    const world = { command: (...line: string[]) => redis.command(line) };
    const names = await world.command("KEYS", `use:*:${keyId}:*`);
    const [, owner = ""] = /\{(\w+)\}/.exec(String(names)) ?? [];
    const seconds = async () =>
      (await usageCounted(world, { ownerId: owner, keyId })).videoSeconds;
    assert.equal(await seconds(), 8);
    const response = await create({
      ...{ model: MODEL, prompt: "Nobody looks", size: SMALL },
    });
    assert.equal(response.status, 200);
    await response.body?.cancel();
    await waitFor(async () => await seconds() === 12, {
      ...{ what: "the seconds of all films", timeoutMs: 40_000 },
    });
    await redis.close();
  });
});
