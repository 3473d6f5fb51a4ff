// Promise: OpenAI's SDK makes, watches, downloads, changes and deletes videos through
// the gateway as it does with OpenAI. What a video costs, and who may see it:
// `services/edge-auth/videos/videos_test.ts`.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import OpenAI, { NotFoundError } from "openai";
import { validatorOf } from "../support/api_document.ts";
import { callApi, type CallOptions } from "../support/chat_request.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { waitFor } from "../support/wait_for.ts";

const VIDEO = { model: "simulated-video-1", prompt: "A red kite" };
/** Below OpenAI's sizes, so that the film is made soon. */
const SMALL: object = { size: "128x128" };
const isVideo = validatorOf("Video");
const isList = validatorOf("VideoList");

Deno.test("OpenAI's SDK makes videos through the gateway", async (t) => {
  await using gateway = await startGateway("launched", { edges: 2 });
  const { key: apiKey } = await gateway.createKey("--scopes=video");
  const baseURL = gateway.baseUrl();
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const call = (path: string, options: CallOptions = {}, key = apiKey) =>
    callApi(`${baseURL}/videos${path}`, key, options);
  /** Polls at both edges in turn, as a proxy distributes requests. */
  const ended = async (id: string) => {
    let edge = 0;
    return await waitFor(async () => {
      edge = 1 - edge;
      const at = new OpenAI({ baseURL: gateway.baseUrl(edge), apiKey });
      const video = await at.videos.retrieve(id);
      assert.ok(isVideo(video), Deno.inspect(video));
      return /^(completed|failed)$/.test(video.status) ? video : undefined;
    }, { what: `${id} to end`, intervalMs: 100 });
  };
  let first = "";

  await t.step("a video is made from words", async () => {
    const asked = { ...VIDEO, seconds: "4", ...SMALL } as const;
    const made = await client.videos.create(asked);
    assert.ok(isVideo(made), Deno.inspect(made));
    assert.match(made.id, /^video_[0-9a-f]{32}$/);
    const expected = { ...asked, status: "queued", error: null };
    assert.partialDeepStrictEqual(made, expected);
    const early = client.videos.downloadContent(made.id);
    await assert.rejects(early, NotFoundError);
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
    const { length } = film;
    assert.equal(whole.headers.get("content-length"), String(length));
    const rows = [
      ["bytes=0-9", 206, 0, 10],
      ["bytes=100-", 206, 100],
      ["bytes=-7", 206, length - 7],
      ["bytes=0-1,5-6", 200],
      ["lines=1-2", 200],
      [`bytes=${length}-`, 416],
    ] as const;
    for (const [range, status, from = 0, to = length] of rows) {
      const init = { headers: { range } };
      const part = await call(`/${first}/content`, init);
      assert.equal(part.status, status, range);
      const bytes = Buffer.from(await part.arrayBuffer());
      if (status === 416) assert.match(`${bytes}`, /"range_not_satisfiable"/);
      else assert.ok(bytes.equals(film.subarray(from, to)), range);
      if (status !== 206) continue;
      const expected = `bytes ${from}-${to - 1}/${length}`;
      assert.equal(part.headers.get("content-range"), expected);
    }
  });

  await t.step("a video is remixed, listed in pages, deleted", async () => {
    const remix = await client.videos.remix(first, { prompt: "A blue kite" });
    assert.equal(remix.remixed_from_video_id, first);
    assert.equal((await ended(remix.id)).status, "completed");
    const variant = "thumbnail" as const;
    const photo = await client.videos.downloadContent(first, { variant });
    const type = photo.headers.get("content-type") ?? "";
    assert.equal(type, "image/png");
    const file = new File([await photo.arrayBuffer()], "a.png", { type });
    const third = await client.videos.create({
      ...VIDEO,
      input_reference: file,
      ...SMALL,
    });
    const ids: string[] = [];
    for await (const { id } of client.videos.list({ limit: 2 })) ids.push(id);
    assert.deepEqual(ids, [third.id, remix.id, first]);
    const list = await (await call("?order=asc&limit=1")).json();
    assert.ok(isList(list), Deno.inspect(list));
    assert.deepEqual(await client.videos.delete(third.id), {
      id: third.id,
      object: "video.deleted",
      deleted: true,
    });
    await assert.rejects(client.videos.retrieve(third.id), NotFoundError);
    const left = await client.videos.list();
    assert.deepEqual(left.data.map(({ id }) => id), [remix.id, first]);
  });

  await t.step("what is wrong is refused in OpenAI's form", async () => {
    const { key: noVideo } = await gateway.createKey("--scopes=chat");
    const create = (change: object) =>
      call("", { body: { ...VIDEO, ...change } });
    const reference = (image_url: string) =>
      create({ input_reference: { image_url } });
    const form = (name: string, value: string | File) => {
      const body = new FormData();
      for (const [field, text] of Object.entries(VIDEO)) {
        body.append(field, text);
      }
      body.append(name, value);
      return call("", { body });
    };
    const large = new File([new Uint8Array(20 * 2 ** 20 + 1)], "a.png");
    const rows: [Promise<Response>, refusal: string][] = [
      [create({ seconds: "0" }), "400 seconds"],
      [create({ seconds: 4.5 }), "400 seconds"],
      [create({ seconds: "5" }), "400 seconds"],
      [create({ size: "wide" }), "400 size"],
      [create({ prompt: " " }), "400 prompt"],
      [create({ prompt: undefined }), "400 prompt"],
      [create({ model: "none" }), "404"],
      [create({ model: "simulated-image-1" }), "404"],
      [reference("http://127.0.0.1/a.png"), "400 input_reference.image_url"],
      [reference("data:image/png;base64,!"), "400 input_reference.image_url"],
      [form("input_reference", "a text"), "400 input_reference"],
      [form("input_reference", large), "413"],
      [form("size", "huge"), "400 size"],
      [create({ prompt: "[simulator: error 503]" }), "503"],
      [call("?limit=101"), "400 limit"],
      [call("?order=up"), "400 order"],
      [call("?after=xxxxxxxxx"), "400 after"],
      [call(`/${first}/content?variant=all`), "400 variant"],
      [call(`/${first}/remix`, { body: {} }), "400 prompt"],
      [call(`/${first}`, {}, noVideo), "403"],
      [call(`/${first}`, { method: "PUT" }), "405"],
      [call("/video_none"), "404"],
    ];
    for (const [asked, refusal] of rows) {
      const response = await asked;
      const { error: { param, message } } = await response.json();
      assert.equal([response.status, param].join(" ").trim(), refusal, message);
    }
    const ignored = await create({ ...SMALL, unknown: true });
    assert.equal(ignored.status, 200);
    await client.videos.delete((await ignored.json()).id);
  });
});
