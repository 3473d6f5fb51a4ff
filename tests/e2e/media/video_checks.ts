// Promise: OpenAI's SDK makes, watches, downloads, changes and deletes videos through
// the gateway as it does with OpenAI. What a video costs, and who may see it:
// `services/edge-auth/videos/videos_test.ts`.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import OpenAI, { NotFoundError } from "openai";
import { validatorOf } from "../../support/api_document.ts";
import { callApi, type CallOptions } from "../../support/chat_request.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import { waitFor } from "../../support/wait_for.ts";

const VIDEO = { model: "simulated-video-1", prompt: "A red kite" };
/** Below OpenAI's sizes, so that the film is made soon. */
const SMALL: object = { size: "128x128" };
const isVideo = validatorOf("Video");
const isList = validatorOf("VideoList");

/** A gateway that makes videos, and a caller with a key for them. */
class Videos {
  /** OpenAI's SDK at the first edge. */
  readonly client: OpenAI;
  readonly #baseURL: string;

  constructor(readonly gateway: LaunchedGateway, readonly apiKey: string) {
    this.#baseURL = gateway.baseUrl();
    this.client = new OpenAI({ baseURL: this.#baseURL, apiKey, maxRetries: 0 });
  }

  /** Calls a path below `/v1/videos`. */
  call(
    path: string,
    options: CallOptions = {},
    key = this.apiKey,
  ): Promise<Response> {
    return callApi(`${this.#baseURL}/videos${path}`, key, options);
  }

  /** Polls at both edges in turn, as a proxy distributes requests, until the end. */
  async ended(id: string) {
    let edge = 0;
    return await waitFor(async () => {
      edge = 1 - edge;
      const baseURL = this.gateway.baseUrl(edge);
      const client = new OpenAI({ baseURL, apiKey: this.apiKey });
      const video = await client.videos.retrieve(id);
      assert.ok(isVideo(video), Deno.inspect(video));
      return /^(completed|failed)$/.test(video.status) ? video : undefined;
    }, { what: `${id} to end`, intervalMs: 100 });
  }
}

async function makesFilm(videos: Videos): Promise<string> {
  const fields = { ...VIDEO, seconds: "4", ...SMALL } as const;
  const first = await videos.client.videos.create(fields);
  assert.ok(isVideo(first), Deno.inspect(first));
  assert.match(first.id, /^video_[0-9a-f]{32}$/);
  const expected = { ...fields, status: "queued", error: null };
  assert.partialDeepStrictEqual(first, expected);
  const early = videos.client.videos.downloadContent(first.id);
  await assert.rejects(early, NotFoundError);
  const video = await videos.ended(first.id);
  assert.equal(video.status, "completed");
  assert.equal(video.progress, 100);
  assert.ok((video.completed_at ?? 0) >= first.created_at);
  return first.id;
}

async function downloads(videos: Videos, first: string): Promise<void> {
  const whole = await videos.client.videos.downloadContent(first);
  assert.equal(whole.headers.get("content-type"), "video/mp4");
  const film = Buffer.from(await whole.arrayBuffer());
  assert.equal(film.toString("latin1", 4, 8), "ftyp");
  const { length } = film;
  assert.equal(whole.headers.get("content-length"), String(length));
  const ranges = [
    { range: "bytes=0-9", status: 206, to: 10 },
    { range: "bytes=100-", status: 206, from: 100 },
    { range: "bytes=-7", status: 206, from: length - 7 },
    { range: "bytes=0-1,5-6", status: 200 },
    { range: "lines=1-2", status: 200 },
    { range: `bytes=${length}-`, status: 416 },
  ];
  for (const { range, status, from = 0, to = length } of ranges) {
    const init = { headers: { range } };
    const part = await videos.call(`/${first}/content`, init);
    assert.equal(part.status, status, range);
    const bytes = Buffer.from(await part.arrayBuffer());
    if (status === 416) assert.match(`${bytes}`, /"range_not_satisfiable"/);
    else assert.ok(bytes.equals(film.subarray(from, to)), range);
    if (status !== 206) continue;
    const expected = `bytes ${from}-${to - 1}/${length}`;
    assert.equal(part.headers.get("content-range"), expected);
  }
}

/** The ids of all videos of the caller's account, newest first, from pages of two. */
async function idsOf({ client }: Videos): Promise<string[]> {
  const ids: string[] = [];
  for await (const { id } of client.videos.list({ limit: 2 })) ids.push(id);
  return ids;
}

async function remixesAndLists(videos: Videos, first: string): Promise<void> {
  const earlier = (await idsOf(videos)).filter((id) => id !== first);
  const remix = await videos.client.videos.remix(first, {
    prompt: "A blue kite",
  });
  assert.equal(remix.remixed_from_video_id, first);
  assert.equal((await videos.ended(remix.id)).status, "completed");
  const variant = "thumbnail" as const;
  const photo = await videos.client.videos.downloadContent(first, { variant });
  const type = photo.headers.get("content-type") ?? "";
  assert.equal(type, "image/png");
  const file = new File([await photo.arrayBuffer()], "a.png", { type });
  const third = await videos.client.videos.create({
    ...VIDEO,
    input_reference: file,
    ...SMALL,
  });
  const ids = [remix.id, first, ...earlier];
  assert.deepEqual(await idsOf(videos), [third.id, ...ids]);
  const list = await (await videos.call("?order=asc&limit=1")).json();
  assert.ok(isList(list), Deno.inspect(list));
  assert.deepEqual(await videos.client.videos.delete(third.id), {
    id: third.id,
    object: "video.deleted",
    deleted: true,
  });
  await assert.rejects(videos.client.videos.retrieve(third.id), NotFoundError);
  const left = await videos.client.videos.list();
  assert.deepEqual(left.data.map(({ id }) => id), ids);
}

/** A request, and the status and the field of the error that it gets. */
interface Refusal {
  ask: () => Promise<Response>;
  refusal: string;
}

/** Asks for a video in a form, with one more field. */
function createByForm(
  videos: Videos,
  name: string,
  value: string | File,
): Promise<Response> {
  const body = new FormData();
  for (const [field, text] of Object.entries(VIDEO)) body.append(field, text);
  body.append(name, value);
  return videos.call("", { body });
}

/** Requests for a video that are wrong. */
function refusedCreations(videos: Videos): Refusal[] {
  const create = (change: object) =>
    videos.call("", { body: { ...VIDEO, ...change } });
  const reference = (image_url: string) =>
    create({ input_reference: { image_url } });
  const form = (name: string, value: string | File) =>
    createByForm(videos, name, value);
  const large = new File([new Uint8Array(20 * 2 ** 20 + 1)], "a.png");
  return [
    { ask: () => create({ seconds: "0" }), refusal: "400 seconds" },
    { ask: () => create({ seconds: 4.5 }), refusal: "400 seconds" },
    { ask: () => create({ seconds: "5" }), refusal: "400 seconds" },
    { ask: () => create({ size: "wide" }), refusal: "400 size" },
    { ask: () => create({ prompt: " " }), refusal: "400 prompt" },
    { ask: () => create({ prompt: undefined }), refusal: "400 prompt" },
    { ask: () => create({ model: "none" }), refusal: "404" },
    { ask: () => create({ model: "simulated-image-1" }), refusal: "404" },
    {
      ask: () => reference("http://127.0.0.1/a.png"),
      refusal: "400 input_reference.image_url",
    },
    {
      ask: () => reference("data:image/png;base64,!"),
      refusal: "400 input_reference.image_url",
    },
    {
      ask: () => form("input_reference", "a text"),
      refusal: "400 input_reference",
    },
    { ask: () => form("input_reference", large), refusal: "413" },
    { ask: () => form("size", "huge"), refusal: "400 size" },
    { ask: () => create({ prompt: "[simulator: error 503]" }), refusal: "503" },
  ];
}

/** Requests about videos that are wrong. */
function refusedOthers(
  videos: Videos,
  first: string,
  noVideo: string,
): Refusal[] {
  return [
    { ask: () => videos.call("?limit=101"), refusal: "400 limit" },
    { ask: () => videos.call("?order=up"), refusal: "400 order" },
    { ask: () => videos.call("?after=xxxxxxxxx"), refusal: "400 after" },
    {
      ask: () => videos.call(`/${first}/content?variant=all`),
      refusal: "400 variant",
    },
    {
      ask: () => videos.call(`/${first}/remix`, { body: {} }),
      refusal: "400 prompt",
    },
    { ask: () => videos.call(`/${first}`, {}, noVideo), refusal: "403" },
    { ask: () => videos.call(`/${first}`, { method: "PUT" }), refusal: "405" },
    { ask: () => videos.call("/video_none"), refusal: "404" },
  ];
}

async function refusesWrong(videos: Videos, first: string): Promise<void> {
  const { key: noVideo } = await videos.gateway.createKey("--scopes=chat");
  const refused = [
    ...refusedCreations(videos),
    ...refusedOthers(videos, first, noVideo),
  ];
  for (const { ask, refusal } of refused) {
    const response = await ask();
    const { error: { param, message } } = await response.json();
    assert.equal([response.status, param].join(" ").trim(), refusal, message);
  }
  const ignored = await videos.call("", {
    body: { ...VIDEO, ...SMALL, unknown: true },
  });
  assert.equal(ignored.status, 200);
  await videos.client.videos.delete((await ignored.json()).id);
}

/** Makes videos through this gateway, which needs two edges. */
export async function checkVideos(
  t: Deno.TestContext,
  gateway: LaunchedGateway,
): Promise<void> {
  const { key: apiKey } = await gateway.createKey("--scopes=video");
  const videos = new Videos(gateway, apiKey);
  let first = "";

  await t.step("a video is made from words", async () => {
    first = await makesFilm(videos);
  });

  await t.step(
    "the film is downloaded, whole and in part",
    () => downloads(videos, first),
  );

  await t.step(
    "a video is remixed, listed in pages, deleted",
    () => remixesAndLists(videos, first),
  );

  await t.step(
    "what is wrong is refused in OpenAI's form",
    () => refusesWrong(videos, first),
  );
}
