// Promise: OpenAI's SDK speaks, draws and transcribes through the gateway as it does
// with OpenAI: whole, streamed, refused and broken off.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import OpenAI from "openai";
import { callApi } from "../../support/chat_request.ts";
import { readStatus } from "../../support/gateway/chat_status.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import { until } from "../../support/wait_for.ts";
import { type Field, formOf, silence } from "./recording_fixture.ts";

const SPEECH = {
  model: "simulated-speech-1",
  voice: "alloy",
  input: "Good morning.",
} as const;
const IMAGE = {
  model: "simulated-image-1",
  prompt: "A red kite",
  size: "256x256",
} as const;
const RECORDING = "simulated-transcription-1";

/**
 * The first bytes of a PNG file of this size: as much as is checked before an engine
 * reads it.
 */
function pngHead(width: number, height: number): File {
  const start = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR".padEnd(24);
  const head = Buffer.from(start, "latin1");
  head.writeUInt32BE(width, 16);
  head.writeUInt32BE(height, 20);
  return new File([head], "b.png", { type: "image/png" });
}

const assertPng = (base64: string | undefined) =>
  assert.match(base64 ?? "", /^iVBORw0KGgo/);

/** A gateway and OpenAI's client for it. */
interface Media {
  gateway: LaunchedGateway;
  client: OpenAI;
  /** Posts a form, or JSON. */
  post: (path: string, body: object, key?: string) => Promise<Response>;
}

/** Speaks, draws and transcribes through this gateway. */
export async function checkSpeechAndPictures(
  t: Deno.TestContext,
  gateway: LaunchedGateway,
): Promise<void> {
  const scopes = "--scopes=chat,models,speech,image";
  const { key: apiKey } = await gateway.createKey(scopes);
  const baseURL = gateway.baseUrl();
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const post = (path: string, body: object, key = apiKey) =>
    callApi(`${baseURL}${path}`, key, { body });
  const media: Media = { gateway, client, post };

  await t.step(
    "speech comes in the format that was asked for",
    () => speaksInFormat(media),
  );

  await t.step(
    "and before the engine has made the last of it",
    () => speaksBeforeEnd(media),
  );

  await t.step(
    "pictures come whole, and unfinished before",
    () => draws(media),
  );

  await t.step(
    "pictures are edited, from a form and from JSON",
    () => edits(media),
  );

  await t.step(
    "recordings are transcribed, also as events",
    () => transcribes(media),
  );

  await t.step(
    "what is wrong is refused in OpenAI's form",
    () => refusesWrong(media),
  );

  await t.step("the limits of a day are kept", () => keepsDayLimits(media));

  await t.step(
    "a broken answer is not taken for a whole one",
    () => breaksOff(media),
  );
}

/**
 * A request, and the status, code and field of the error that it gets. They are sent
 * one after the other: a key may have only a few refused at once.
 */
interface Refusal {
  ask: () => Promise<Response>;
  refusal: string;
}

const MISSING = "400 missing_required_parameter";

function refusedJson({ post }: Media): Refusal[] {
  const json = (path: string, whole: object) => (change: object) =>
    post(path, { ...whole, ...change });
  const speech = json("/audio/speech", SPEECH);
  const image = json("/images/generations", IMAGE);
  const editJson = json("/images/edits", IMAGE);
  const messages = [{ role: "user", content: "hi" }];
  const chat = json("/chat/completions", { messages });
  const local = { image_url: "https://127.0.0.1/a.png" };
  const long = "x".repeat(4_097);
  const aFile = { images: [{ file_id: "f" }] };
  return [
    { ask: () => speech({ input: "" }), refusal: "400 empty_string input" },
    { ask: () => speech({ input: " " }), refusal: "400 invalid_value input" },
    {
      ask: () => speech({ input: long }),
      refusal: "400 string_above_max_length input",
    },
    {
      ask: () => speech({ speed: 5 }),
      refusal: "400 decimal_above_max_value speed",
    },
    {
      ask: () => speech({ response_format: "ogg" }),
      refusal: "400 invalid_value response_format",
    },
    { ask: () => speech({ model: "no-such" }), refusal: "404 model_not_found" },
    {
      ask: () => speech({ model: IMAGE.model }),
      refusal: "404 model_not_found",
    },
    { ask: () => chat({ model: IMAGE.model }), refusal: "404 model_not_found" },
    {
      ask: () => speech({ input: "[simulator: error 500]" }),
      refusal: "502 upstream_error",
    },
    { ask: () => image({ n: 11 }), refusal: "400 integer_above_max_value n" },
    {
      ask: () => image({ partial_images: 4 }),
      refusal: "400 integer_above_max_value partial_images",
    },
    // The model server decides about sizes.
    {
      ask: () => image({ size: "1x1" }),
      refusal: "400 invalid_value size",
    },
    { ask: () => editJson({}), refusal: `${MISSING} images` },
    { ask: () => editJson(aFile), refusal: `${MISSING} images[0].image_url` },
    {
      ask: () => editJson({ images: [local] }),
      refusal: "400 invalid_value images[0].image_url",
    },
  ];
}

function refusedForms({ post }: Media): Refusal[] {
  const record = (...fields: Field[]) =>
    post("/audio/transcriptions", formOf(...fields));
  const edit = (...fields: Field[]) =>
    post("/images/edits", formOf(["prompt", "Sky"], ...fields));
  const hears: Field = ["model", RECORDING];
  const file: Field = ["file", silence()];
  const draws: Field = ["model", IMAGE.model];
  const picture: Field = ["image", pngHead(64, 64)];
  const text: Field = ["file", new File(["no sound"], "c.txt")];
  const wrongMask: Field = ["mask", pngHead(64, 63)];
  return [
    { ask: () => record(hears), refusal: `${MISSING} file` },
    { ask: () => record(file), refusal: `${MISSING} model` },
    {
      ask: () => record(file, ["model", "no-such"]),
      refusal: "404 model_not_found",
    },
    { ask: () => record(hears, text), refusal: "400 invalid_request file" },
    { ask: () => edit(draws), refusal: `${MISSING} image` },
    { ask: () => edit(picture), refusal: `${MISSING} model` },
    { ask: () => edit(hears, picture), refusal: "404 model_not_found" },
    {
      ask: () => edit(draws, picture, ["n", "11"]),
      refusal: "400 integer_above_max_value n",
    },
    {
      ask: () => edit(draws, ["image", "text"]),
      refusal: "400 invalid_type image",
    },
    // The model may be the last part, and two files are checked like one.
    {
      ask: () => edit(picture, wrongMask, draws),
      refusal: "400 invalid_value mask",
    },
    {
      ask: () => edit(draws, ...Array(17).fill(picture)),
      refusal: "400 invalid_value image",
    },
  ];
}

/** What a key gets whose scopes lack speech. */
function refusedToKey({ post }: Media, noSpeech: string): Refusal[] {
  const form = formOf(["model", RECORDING], ["file", silence()]);
  return [
    {
      ask: () => post("/audio/speech", SPEECH, noSpeech),
      refusal: "403 forbidden",
    },
    {
      ask: () => post("/audio/transcriptions", form, noSpeech),
      refusal: "403 forbidden",
    },
  ];
}

async function speaksInFormat({ client }: Media) {
  const wav = { ...SPEECH, response_format: "wav" } as const;
  const response = await client.audio.speech.create(wav);
  assert.equal(response.headers.get("content-type"), "audio/wav");
  const sound = Buffer.from(await response.arrayBuffer());
  assert.equal(sound.toString("latin1", 0, 4), "RIFF");
  assert.ok(sound.length > 10_000, `${sound.length}`);
}

async function speaksBeforeEnd({ client }: Media) {
  const words = "Good morning. ".repeat(4);
  const startedAt = performance.now();
  const response = await client.audio.speech.create({
    ...SPEECH,
    response_format: "pcm",
    input: `${words}[simulator: 20 tokens per second]`,
  });
  const reader = response.body?.getReader() ?? assert.fail();
  await reader.read();
  const firstMs = performance.now() - startedAt;
  while (!(await reader.read()).done);
  const totalMs = performance.now() - startedAt;
  assert.ok(firstMs < totalMs / 2, `${firstMs} of ${totalMs}`);
}

async function draws({ client }: Media) {
  const whole = await client.images.generate({ ...IMAGE, n: 2 });
  assert.equal(whole.data?.length, 2);
  for (const { b64_json } of whole.data ?? []) assertPng(b64_json);
  assert.ok((whole.usage?.total_tokens ?? 0) > 0);
  const { data: [linked] = [] } = await client.images.generate({
    ...IMAGE,
    response_format: "url",
  });
  assert.match(linked?.url ?? "", /^data:image\/png;base64,iVBORw0KGgo/);
  const stream = await client.images.generate({
    ...IMAGE,
    stream: true,
    partial_images: 2,
  });
  const types: string[] = [];
  for await (const event of stream) {
    types.push(event.type);
    assertPng(event.b64_json);
  }
  const partial = "image_generation.partial_image";
  assert.deepEqual(types, [partial, partial, "image_generation.completed"]);
}

async function edits({ client, post }: Media) {
  const { data: [picture] = [] } = await client.images.generate(IMAGE);
  const { b64_json = "" } = picture ?? {};
  const type = "image/png";
  const file = new File([Buffer.from(b64_json, "base64")], "a.png", { type });
  const one = await client.images.edit({ ...IMAGE, image: file });
  const several = await client.images.edit({
    ...IMAGE,
    image: [file, file],
    mask: file,
    n: 2,
  });
  assert.equal(several.data?.length, 2);
  const reference = { image_url: `data:image/png;base64,${b64_json}` };
  const json = { ...IMAGE, images: [reference], mask: reference, user: null };
  const within = await (await post("/images/edits", json)).json();
  const edited = [one, several, within].map(({ data }) => data[0]?.b64_json);
  assertPng(edited[0]);
  assert.notEqual(edited[0], b64_json);
  assert.equal(new Set(edited).size, 1);
  assert.ok((one.usage?.input_tokens_details.image_tokens ?? 0) > 0);
}

async function transcribes({ client }: Media) {
  const ask = { model: RECORDING, file: silence() };
  const { text } = await client.audio.transcriptions.create(ask);
  assert.match(text, /silence\.wav/);
  const vtt = await client.audio.transcriptions.create({
    ...ask,
    response_format: "vtt",
  });
  assert.match(String(vtt), /^WEBVTT/);
  const { words = [] } = await client.audio.transcriptions.create({
    ...ask,
    response_format: "verbose_json",
    timestamp_granularities: ["word"],
  });
  assert.equal(words[0]?.word, "I");
  const translated = await client.audio.translations.create(ask);
  assert.match(translated.text, /silence\.wav/);
  const stream = { ...ask, stream: true } as const;
  let deltas = "";
  for await (
    const event of await client.audio.transcriptions.create(stream)
  ) {
    if (event.type === "transcript.text.delta") deltas += event.delta;
    if (event.type === "transcript.text.done") assert.equal(event.text, deltas);
  }
  assert.equal(deltas, text);
}

async function refusesWrong(media: Media) {
  const { gateway } = media;
  const { key: noSpeech } = await gateway.createKey("--scopes=chat,models");
  const rows = [
    ...refusedJson(media),
    ...refusedForms(media),
    ...refusedToKey(media, noSpeech),
  ];
  for (const { ask, refusal } of rows) {
    const response = await ask();
    const { error: { code, param, message } } = await response.json();
    const found = [response.status, code, param ?? ""].join(" ").trim();
    assert.equal(found, refusal, message);
    assert.ok(message.includes(param ?? ""), message);
  }
}

async function keepsDayLimits({ gateway, post }: Media) {
  const limits = "--images-per-day=2 --characters-per-day=20 " +
    "--audio-seconds-per-day=1 --scopes=speech,image";
  const { key } = await gateway.createKey(...limits.split(" "));
  const draw = (change = {}) =>
    post("/images/generations", { ...IMAGE, ...change }, key);
  const say = (input: string) =>
    post("/audio/speech", { ...SPEECH, input }, key);
  const form = formOf(["model", RECORDING], ["file", silence()]);
  const record = () => post("/audio/transcriptions", form, key);
  const bad = { prompt: "[simulator: error 400]", n: 2 };
  assert.equal(await readStatus(draw(bad)), 400);
  // What a failure had reserved is given back when it is settled.
  await until(async () => await readStatus(draw()) === 200);
  // How long a recording is, is known when it has been transcribed.
  await until(async () => await readStatus(record()) === 429);
  assert.equal(await readStatus(draw()), 200);
  assert.equal(await readStatus(say("x".repeat(20))), 200);
  const edit = formOf(...Object.entries(IMAGE), ["image", pngHead(64, 64)]);
  const refused = [
    [draw(), "images"],
    [post("/images/edits", edit, key), "images"],
    [say("x"), "characters"],
    [record(), "audio seconds"],
  ] as const;
  for (const [answer, limit] of refused) {
    const response = await answer;
    const { error } = await response.json();
    assert.equal(error.code, "rate_limit_exceeded");
    const form = new RegExp(`^Limit of ${limit} per day reached for this`);
    assert.match(error.message, form);
    assert.equal(response.headers.get("x-should-retry"), "false");
  }
}

async function breaksOff({ client, post }: Media) {
  const input = "Good morning. ".repeat(20) +
    "[simulator: cut after 3 tokens]";
  const body = { ...SPEECH, input, response_format: "pcm" } as const;
  const { body: sound } = await client.audio.speech.create(body);
  await assert.rejects(new Response(sound).arrayBuffer());
  const stream = { ...body, stream_format: "sse" };
  const events = await (await post("/audio/speech", stream)).text();
  assert.match(events, /event: error\ndata: \{"error":/);
  assert.doesNotMatch(events, /speech\.audio\.done/);
}
