// Promise: OpenAI's SDK speaks, draws and transcribes through the gateway as it does
// with OpenAI: whole, streamed, refused and broken off. Whatever becomes of an upload,
// its worker gets the slot back, and an edge never holds a whole file.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import OpenAI from "openai";
import { callApi } from "../support/chat_request.ts";
import { readStatus } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { sleep, until } from "../support/wait_for.ts";
import { recording, silence } from "./recording_fixture.ts";

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
const MIB = 1024 * 1024;
/** What the sockets of a connection may hold, in MiB. */
const MIB_OF_KERNEL = 8;

type Field = [name: string, value: string | File];

const formOf = (...fields: readonly Field[]) => {
  const data = new FormData();
  for (const [name, value] of fields) data.append(name, value);
  return data;
};

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

Deno.test("OpenAI's SDK speaks, draws and transcribes through the gateway", async (t) => {
  await using gateway = await startGateway("launched");
  const scopes = "--scopes=chat,models,speech,image";
  const { key: apiKey } = await gateway.createKey(scopes);
  const baseURL = gateway.baseUrl();
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  /** Posts a form, or JSON. */
  const post = (path: string, body: object, key = apiKey) =>
    callApi(`${baseURL}${path}`, key, { body });

  await t.step("speech comes in the format that was asked for", async () => {
    const wav = { ...SPEECH, response_format: "wav" } as const;
    const response = await client.audio.speech.create(wav);
    assert.equal(response.headers.get("content-type"), "audio/wav");
    const sound = Buffer.from(await response.arrayBuffer());
    assert.equal(sound.toString("latin1", 0, 4), "RIFF");
    assert.ok(sound.length > 10_000, `${sound.length}`);
  });

  await t.step("and before the engine has made the last of it", async () => {
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
  });

  await t.step("pictures come whole, and unfinished before", async () => {
    const whole = await client.images.generate({ ...IMAGE, n: 2 });
    assert.equal(whole.data?.length, 2);
    for (const { b64_json } of whole.data ?? []) assertPng(b64_json);
    assert.ok((whole.usage?.total_tokens ?? 0) > 0);
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
  });

  await t.step("pictures are edited, from a form and from JSON", async () => {
    const { data: [drawn] = [] } = await client.images.generate(IMAGE);
    const { b64_json = "" } = drawn ?? {};
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
  });

  await t.step("recordings are transcribed, also as events", async () => {
    const ask = { model: RECORDING, file: silence() };
    const { text } = await client.audio.transcriptions.create(ask);
    assert.match(text, /silence\.wav/);
    const vtt = await client.audio.transcriptions.create({
      ...ask,
      response_format: "vtt",
    });
    assert.match(String(vtt), /^WEBVTT/);
    const translated = await client.audio.translations.create(ask);
    assert.match(translated.text, /silence\.wav/);
    const stream = { ...ask, stream: true } as const;
    let said = "";
    for await (
      const event of await client.audio.transcriptions.create(stream)
    ) {
      if (event.type === "transcript.text.delta") said += event.delta;
      if (event.type === "transcript.text.done") assert.equal(event.text, said);
    }
    assert.equal(said, text);
  });

  await t.step("what is wrong is refused in OpenAI's form", async () => {
    const json = (path: string, whole: object) => (change: object) =>
      post(path, { ...whole, ...change });
    const speech = json("/audio/speech", SPEECH);
    const image = json("/images/generations", IMAGE);
    const editJson = json("/images/edits", IMAGE);
    const messages = [{ role: "user", content: "hi" }];
    const chat = json("/chat/completions", { messages });
    const record = (...fields: Field[]) =>
      post("/audio/transcriptions", formOf(...fields));
    const edit = (...fields: Field[]) =>
      post("/images/edits", formOf(["prompt", "Sky"], ...fields));
    const hears: Field = ["model", RECORDING];
    const file: Field = ["file", silence()];
    const draws: Field = ["model", IMAGE.model];
    const picture: Field = ["image", pngHead(64, 64)];
    const { key: noSpeech } = await gateway.createKey("--scopes=chat,models");
    const local = { image_url: "https://127.0.0.1/a.png" };
    const text: Field = ["file", new File(["no sound"], "c.txt")];
    const wrongMask: Field = ["mask", pngHead(64, 63)];
    const long = "x".repeat(4_097);
    const missing = "400 missing_required_parameter";
    const form = formOf(hears, file);
    const aFile = { images: [{ file_id: "f" }] };
    const rows: [asked: Promise<Response>, refusal: string][] = [
      [speech({ input: "" }), "400 empty_string input"],
      [speech({ input: " " }), "400 invalid_value input"],
      [speech({ input: long }), "400 string_above_max_length input"],
      [speech({ speed: 5 }), "400 decimal_above_max_value speed"],
      [speech({ response_format: "ogg" }), "400 invalid_value response_format"],
      [speech({ model: "no-such" }), "404 model_not_found"],
      [speech({ model: IMAGE.model }), "404 model_not_found"],
      [chat({ model: IMAGE.model }), "404 model_not_found"],
      [speech({ input: "[simulator: error 500]" }), "502 upstream_error"],
      [image({ n: 11 }), "400 integer_above_max_value n"],
      [image({ response_format: "url" }), "400 invalid_value response_format"],
      [image({ partial_images: 1 }), "400 invalid_value partial_images"],
      [record(hears), `${missing} file`],
      [record(file), `${missing} model`],
      [record(file, ["model", "no-such"]), "404 model_not_found"],
      [record(hears, text), "400 invalid_request file"],
      [edit(draws), `${missing} image`],
      [edit(picture), `${missing} model`],
      [edit(hears, picture), "404 model_not_found"],
      [edit(draws, picture, ["n", "11"]), "400 integer_above_max_value n"],
      [edit(draws, ["image", "text"]), "400 invalid_type image"],
      // The model may be the last part, and two files are checked like one.
      [edit(picture, wrongMask, draws), "400 invalid_value mask"],
      [edit(draws, ...Array(17).fill(picture)), "400 invalid_value image"],
      [editJson({}), `${missing} images`],
      [editJson(aFile), `${missing} images[0].image_url`],
      [editJson({ images: [local] }), "400 invalid_value images[0].image_url"],
      [post("/audio/speech", SPEECH, noSpeech), "403 forbidden"],
      [post("/audio/transcriptions", form, noSpeech), "403 forbidden"],
    ];
    for (const [asked, refusal] of rows) {
      const response = await asked;
      const { error: { code, param, message } } = await response.json();
      const found = [response.status, code, param ?? ""].join(" ").trim();
      assert.equal(found, refusal, message);
      assert.ok(message.includes(param ?? ""), message);
    }
  });

  await t.step("the limits of a day are kept", async () => {
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
    for (const [asked, limit] of refused) {
      const response = await asked;
      const { error } = await response.json();
      assert.equal(error.code, "rate_limit_exceeded");
      const form = new RegExp(`^Limit of ${limit} per day reached for this`);
      assert.match(error.message, form);
      assert.equal(response.headers.get("x-should-retry"), "false");
    }
  });

  await t.step("a broken answer is not taken for a whole one", async () => {
    const input = "Good morning. ".repeat(20) +
      "[simulator: cut after 3 tokens]";
    const body = { ...SPEECH, input, response_format: "pcm" } as const;
    const { body: sound } = await client.audio.speech.create(body);
    await assert.rejects(new Response(sound).arrayBuffer());
    const stream = { ...body, stream_format: "sse" };
    const events = await (await post("/audio/speech", stream)).text();
    assert.match(events, /event: error\ndata: \{"error":/);
    assert.doesNotMatch(events, /speech\.audio\.done/);
  });

  /**
   * Sends the first MiB of a recording, or more, and the rest when the test says so.
   */
  const beginUpload = async (mib = 4, stopMib = 1) => {
    const file = new File([recording(mib * MIB)], "a.wav");
    const form = new Response(formOf(["file", file], ["model", RECORDING]));
    const bytes = await form.bytes();
    const upload = {
      sentMib: 0,
      rest: Promise.withResolvers<void>(),
      leaving: new AbortController(),
    };
    const pieces = async function* () {
      for (; upload.sentMib <= mib; upload.sentMib += 1) {
        if (upload.sentMib === stopMib) await upload.rest.promise;
        const at = upload.sentMib * MIB;
        yield bytes.subarray(at, at + MIB);
      }
    };
    const answered = fetch(`${baseURL}/audio/transcriptions`, {
      method: "POST",
      body: ReadableStream.from(pieces()),
      headers: {
        authorization: `Bearer ${apiKey}`,
        "content-type": form.headers.get("content-type") ?? "",
      },
      signal: upload.leaving.signal,
    });
    answered.catch(() => {}); // It may leave before the answer.
    await gateway.runs("media-worker", 1);
    return Object.assign(upload, { answered });
  };

  await t.step("an edge holds no more than the worker takes", async () => {
    const mib = 24;
    const upload = await beginUpload(mib);
    const worker = gateway.pid("media-worker");
    let before = 0;
    Deno.kill(worker, "SIGSTOP");
    upload.rest.resolve();
    await until(async () => {
      before = upload.sentMib;
      await sleep(200);
      return before > 1 && upload.sentMib === before;
    });
    Deno.kill(worker, "SIGCONT");
    // The buffers of the kernel take some of it.
    assert.ok(before < mib - MIB_OF_KERNEL, `${before} MiB of ${mib}`);
    const response = await upload.answered;
    assert.equal(response.status, 200);
    assert.match((await response.json()).text, /a\.wav/);
    await gateway.runs("media-worker", 0);
  });

  await t.step("a client that leaves gives the slot back", async () => {
    const upload = await beginUpload();
    upload.leaving.abort();
    await gateway.runs("media-worker", 0);
  });

  await t.step("its worker killed: an error, the next one works", async () => {
    const stopMib = MIB_OF_KERNEL + 1;
    const upload = await beginUpload(2 * stopMib, stopMib);
    // So much has left the client only once the worker has accepted the job.
    await until(() => upload.sentMib === stopMib);
    const pid = gateway.pid("media-worker");
    Deno.kill(pid, "SIGKILL");
    const response = await upload.answered;
    assert.equal(response.status, 502);
    assert.equal((await response.json()).error.code, "worker_lost");
    await gateway.isReplaced("media-worker", pid);
    const form = formOf(["model", RECORDING], ["file", silence()]);
    const again = () => readStatus(post("/audio/transcriptions", form));
    await until(async () => await again() === 200);
  });
});
