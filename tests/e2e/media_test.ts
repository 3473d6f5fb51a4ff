/**
 * Guarantee: OpenAI's SDK speaks, draws and transcribes through the gateway as it does
 * with OpenAI: whole, streamed, refused and broken off. Everything runs as `up` starts
 * it, on the simulator.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import OpenAI, { APIError } from "openai";
import { UPLOAD_LIMITS } from "@gateway/shared/limits";
import { createKey } from "../conformance/context.ts";
import { startCluster } from "../support/cluster.ts";
import { waitFor } from "../support/wait_for.ts";
import { silence } from "./recording_fixture.ts";

const SPEECH = {
  model: "simulated-speech-1",
  voice: "alloy",
  input: "Good morning.",
} as const;
const IMAGE = {
  ...{ model: "simulated-image-1", prompt: "A red kite" },
  size: "256x256",
} as const;
const RECORDING = "simulated-transcription-1";
const PNG = [0x89, 0x50, 0x4e, 0x47];

/** The first bytes of a PNG file of this size: as much as is checked before an engine reads it. */
function pngHead(width: number, height: number, name = "b.png"): File {
  const head = Buffer.from(
    "\x89PNG\r\n\x1a\n\0\0\0\rIHDR".padEnd(24),
    "latin1",
  );
  head.writeUInt32BE(width, 16);
  head.writeUInt32BE(height, 20);
  return new File([head], name, { type: "image/png" });
}

const isPng = (base64: string | undefined) =>
  assert.deepEqual(
    [...Buffer.from(base64 ?? "", "base64").subarray(0, 4)],
    PNG,
  );

Deno.test("OpenAI's SDK speaks, draws and transcribes through the gateway", async (t) => {
  await using cluster = await startCluster({ workers: 1 });
  const scopes = "--scopes=chat,models,speech,image";
  const { key: apiKey } = await createKey(cluster, scopes);
  const baseURL = cluster.baseUrl();
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const post = (path: string, body: BodyInit, key = apiKey) =>
    fetch(`${baseURL}${path}`, {
      method: "POST",
      body,
      headers: {
        authorization: `Bearer ${key}`,
        ...typeof body === "string"
          ? { "content-type": "application/json" }
          : {},
      },
    });
  const errorOf = async (response: Response) => {
    const { error } = await response.json();
    return [response.status, error.code, error.param ?? null];
  };
  const form = (fields: [string, string | File][]) => {
    const data = new FormData();
    for (const [name, value] of fields) data.append(name, value);
    return data;
  };

  await t.step("speech comes in the format that was asked for", async () => {
    const response = await client.audio.speech.create({
      ...SPEECH,
      response_format: "wav",
    });
    assert.equal(response.headers.get("content-type"), "audio/wav");
    const sound = Buffer.from(await response.arrayBuffer());
    assert.equal(sound.toString("latin1", 0, 4), "RIFF");
    assert.ok(sound.length > 10_000, `${sound.length}`);
  });

  await t.step(
    "its first bytes come before the engine has made the last",
    async () => {
      const input = `${
        "Good morning. ".repeat(4)
      }[simulator: 20 tokens per second]`;
      const startedAt = performance.now();
      const response = await client.audio.speech.create({
        ...SPEECH,
        ...{ input, response_format: "pcm" },
      });
      const reader = response.body?.getReader() ?? assert.fail();
      await reader.read();
      const firstMs = performance.now() - startedAt;
      while (!(await reader.read()).done);
      const totalMs = performance.now() - startedAt;
      assert.ok(firstMs < totalMs / 2, `${firstMs} of ${totalMs}`);
    },
  );

  await t.step("speech as events ends with its usage", async () => {
    const body = { ...SPEECH, response_format: "pcm", stream_format: "sse" };
    const response = await post("/audio/speech", JSON.stringify(body));
    const type = response.headers.get("content-type") ?? "";
    assert.match(type, /^text\/event-stream/);
    const events = (await response.text()).split("\n\n").filter(Boolean)
      .map((event) => JSON.parse(/^data: (.*)$/m.exec(event)?.[1] ?? "null"));
    assert.ok(events.length > 1);
    assert.equal(events.at(0).type, "speech.audio.delta");
    assert.equal(events.at(-1).type, "speech.audio.done");
    assert.ok(events.at(-1).usage.total_tokens > 0);
  });

  await t.step(
    "pictures come whole and, if asked for, unfinished before",
    async () => {
      const { data = [], usage } = await client.images.generate({
        ...IMAGE,
        n: 2,
      });
      assert.equal(data.length, 2);
      for (const { b64_json } of data) isPng(b64_json);
      assert.ok((usage?.total_tokens ?? 0) > 0);
      const stream = await client.images.generate({
        ...IMAGE,
        ...{ stream: true, partial_images: 2 },
      });
      const types: string[] = [];
      for await (const event of stream) {
        types.push(event.type);
        isPng(event.b64_json);
      }
      const partial = "image_generation.partial_image";
      assert.deepEqual(types, [partial, partial, "image_generation.completed"]);
    },
  );

  await t.step("pictures are edited, from a form and from JSON", async () => {
    const { data: [drawn] = [] } = await client.images.generate(IMAGE);
    const { b64_json = "" } = drawn ?? {};
    const bytes = Buffer.from(b64_json, "base64");
    const file = (name: string) =>
      new File([bytes], name, { type: "image/png" });
    const one = await client.images.edit({ ...IMAGE, image: file("a.png") });
    const several = await client.images.edit({
      ...{ ...IMAGE, image: [file("a.png"), file("b.png")], n: 2 },
      mask: file("mask.png"),
    });
    assert.equal(several.data?.length, 2);
    const reference = { image_url: `data:image/png;base64,${b64_json}` };
    const json = { ...IMAGE, images: [reference], mask: reference, user: null };
    const within = await post("/images/edits", JSON.stringify(json));
    assert.equal(within.status, 200);
    const files = [one, several, await within.json()];
    const edited = files.map(({ data = [] }) => data[0]?.b64_json);
    isPng(edited[0]);
    assert.notEqual(edited[0], b64_json);
    assert.equal(new Set(edited).size, 1);
    assert.ok((one.usage?.input_tokens_details.image_tokens ?? 0) > 0);
    const stream = await client.images.edit({
      ...{ ...IMAGE, image: file("a.png"), stream: true, partial_images: 1 },
    });
    const types: string[] = [];
    for await (const event of stream) {
      types.push(event.type);
      isPng(event.b64_json);
    }
    const expected = ["image_edit.partial_image", "image_edit.completed"];
    assert.deepEqual(types, expected);
  });

  await t.step(
    "recordings are transcribed in each format, and as events",
    async () => {
      const ask = { model: RECORDING, file: silence() };
      const { text } = await client.audio.transcriptions.create(ask);
      assert.match(text, /silence\.wav/);
      const vtt = await post(
        "/audio/transcriptions",
        form([["response_format", "vtt"], ["file", silence()], [
          "model",
          RECORDING,
        ]]),
      );
      assert.match(vtt.headers.get("content-type") ?? "", /^text\/vtt/);
      assert.match(await vtt.text(), /^WEBVTT/);
      const translated = await client.audio.translations.create(ask);
      assert.match(translated.text, /silence\.wav/);
      const stream = await client.audio.transcriptions.create({
        ...ask,
        stream: true,
      });
      let said = "";
      let done = "";
      for await (const event of stream) {
        if (event.type === "transcript.text.delta") said += event.delta;
        if (event.type === "transcript.text.done") done = event.text;
      }
      assert.equal(said, done);
      assert.equal(done, text);
    },
  );

  await t.step("what is wrong is refused in OpenAI's form", async () => {
    const speech = (change: object) => () =>
      post("/audio/speech", JSON.stringify({ ...SPEECH, ...change }));
    const image = (change: object) => () =>
      post("/images/generations", JSON.stringify({ ...IMAGE, ...change }));
    const record = (...fields: [string, string | File][]) => () =>
      post("/audio/transcriptions", form(fields));
    const large = new File(
      [new Uint8Array(UPLOAD_LIMITS.audioBytesMax + 1)],
      "b.wav",
    );
    const edit = (...fields: [string, string | File][]) => () =>
      post("/images/edits", form([["prompt", "Sky"], ...fields]));
    const editJson = (change: object) => () =>
      post("/images/edits", JSON.stringify({ ...IMAGE, ...change }));
    const draws: [string, string] = ["model", IMAGE.model];
    const picture: [string, File] = ["image", pngHead(64, 64)];
    const brokenForm = () =>
      fetch(`${baseURL}/images/edits`, {
        method: "POST",
        body: '--x\r\ncontent-disposition: form-data; name="image"; filename',
        headers: {
          authorization: `Bearer ${apiKey}`,
          "content-type": "multipart/form-data; boundary=x",
        },
      });
    const largePicture = new File(
      [new Uint8Array(UPLOAD_LIMITS.imageBytesMax + 1)],
      "c.png",
    );
    const missing = [400, "missing_required_parameter"] as const;
    const { key: noSpeech } = await createKey(cluster, "--scopes=chat,models");
    const rows: [() => Promise<Response>, unknown[]][] = [
      [speech({ input: "" }), [400, "empty_string", "input"]],
      [speech({ input: "x".repeat(4_097) }), [
        400,
        "string_above_max_length",
        "input",
      ]],
      [speech({ speed: 5 }), [400, "decimal_above_max_value", "speed"]],
      [speech({ response_format: "ogg" }), [
        400,
        "invalid_value",
        "response_format",
      ]],
      [speech({ model: "no-such" }), [404, "model_not_found", null]],
      [speech({ model: IMAGE.model }), [404, "model_not_found", null]],
      [speech({ input: "[simulator: error 500]" }), [
        502,
        "upstream_error",
        null,
      ]],
      [image({ n: 11 }), [400, "integer_above_max_value", "n"]],
      [image({ response_format: "url" }), [
        400,
        "invalid_value",
        "response_format",
      ]],
      [image({ partial_images: 1 }), [400, "invalid_value", "partial_images"]],
      [record(["model", RECORDING]), [
        400,
        "missing_required_parameter",
        "file",
      ]],
      [record(["file", silence()]), [
        400,
        "missing_required_parameter",
        "model",
      ]],
      [record(["file", silence()], ["model", "no-such"]), [
        404,
        "model_not_found",
        null,
      ]],
      [
        record(["model", RECORDING], ["file", new File(["no sound"], "c.txt")]),
        [400, "invalid_request", "file"],
      ],
      [record(["model", RECORDING], ["file", large]), [
        413,
        "request_too_large",
        null,
      ]],
      [edit(draws), [...missing, "image"]],
      [edit(picture), [...missing, "model"]],
      [edit(["model", "no-such"], picture), [404, "model_not_found", null]],
      [edit(picture, ["model", "no-such"]), [404, "model_not_found", null]],
      [edit(draws, picture, ["n", "11"]), [
        400,
        "integer_above_max_value",
        "n",
      ]],
      [edit(draws, ["image", "text"]), [400, "invalid_type", "image"]],
      [edit(draws, ["image", new File(["GIF89a"], "a.gif")]), [
        400,
        "invalid_value",
        "image",
      ]],
      [edit(draws, ["image[]", pngHead(60_000, 60_000)]), [
        400,
        "invalid_value",
        "image",
      ]],
      // The model may be the last part, and two files are checked like one.
      [edit(picture, ["mask", pngHead(64, 63)], draws), [
        400,
        "invalid_value",
        "mask",
      ]],
      [edit(draws, ...Array.from({ length: 17 }, () => picture)), [
        400,
        "invalid_value",
        "image",
      ]],
      [edit(...Array.from({ length: 10_000 }, () => draws)), [
        400,
        "invalid_request",
        null,
      ]],
      [brokenForm, [400, "invalid_request", null]],
      [edit(draws, ["image", largePicture]), [
        413,
        "request_too_large",
        null,
      ]],
      [editJson({}), [...missing, "images"]],
      [editJson({ images: [] }), [400, "empty_array", "images"]],
      [editJson({ images: [{ file_id: "f" }] }), [
        ...missing,
        "images[0].image_url",
      ]],
      [editJson({ images: [{ image_url: "https://127.0.0.1/a.png" }] }), [
        400,
        "invalid_value",
        "images[0].image_url",
      ]],
      [edit(["model", RECORDING], picture), [404, "model_not_found", null]],
      [() => post("/audio/speech", JSON.stringify(SPEECH), noSpeech), [
        403,
        "forbidden",
        null,
      ]],
      [
        () =>
          post(
            "/audio/transcriptions",
            form([["model", RECORDING], ["file", silence()]]),
            noSpeech,
          ),
        [403, "forbidden", null],
      ],
    ];
    for (const [ask, expected] of rows) {
      assert.deepEqual(await errorOf(await ask()), expected);
    }
  });

  await t.step("the limits of a day are kept", async () => {
    const limits = "--images-per-day=2 --characters-per-day=20 " +
      "--audio-seconds-per-day=1 --scopes=speech,image";
    const options = ["--description", "Limited", ...limits.split(" ")];
    const { key } = JSON.parse(
      await cluster.keys("create", ...options, "--json"),
    );
    const draw = (n: number) => () =>
      post("/images/generations", JSON.stringify({ ...IMAGE, n }), key);
    const sent = form([...Object.entries(IMAGE), ["image", pngHead(64, 64)]]);
    const edit = () => post("/images/edits", sent, key);
    const say = (input: string) => () =>
      post("/audio/speech", JSON.stringify({ ...SPEECH, input }), key);
    const record = () =>
      post(
        "/audio/transcriptions",
        form([["model", RECORDING], ["file", silence()]]),
        key,
      );
    const bad = { ...IMAGE, prompt: "[simulator: error 400]", n: 2 };
    const fail = () => post("/images/generations", JSON.stringify(bad), key);
    const rows: [
      ask: () => Promise<Response>,
      status: number,
      limit?: RegExp,
    ][] = [
      [draw(2), 429, /^Limit of images per day reached for this API key/],
      [draw(1), 200],
      [draw(1), 429, /images per day/],
      [edit, 429, /images per day/],
      [say("x".repeat(20)), 200],
      [say("x"), 429, /characters per day/],
      [record, 429, /audio seconds per day/],
    ];
    const isDone = async (ask: () => Promise<Response>, status: number) => {
      const response = await ask();
      await response.text();
      return response.status === status;
    };
    assert.ok(await isDone(fail, 400));
    // What a failure had reserved is given back when it is settled.
    await waitFor(() => isDone(draw(1), 200), { what: "the refund" });
    // How long a recording is, is known when it has been transcribed.
    await waitFor(() => isDone(record, 429), { what: "the seconds" });
    for (const [ask, status, limit] of rows) {
      const response = await ask();
      const text = await response.text();
      assert.equal(response.status, status, text);
      if (limit === undefined) continue;
      const { error } = JSON.parse(text);
      assert.equal(error.code, "rate_limit_exceeded");
      assert.match(error.message, limit);
      assert.equal(response.headers.get("x-should-retry"), "false");
    }
  });

  await t.step(
    "an answer that breaks off is not taken for a whole one",
    async () => {
      const input = "Good morning. ".repeat(20) +
        "[simulator: cut after 3 tokens]";
      const speaking = client.audio.speech.create({
        ...SPEECH,
        input,
        response_format: "pcm",
      })
        .then((response) => response.arrayBuffer());
      await assert.rejects(speaking);
      const body = {
        ...SPEECH,
        input,
        response_format: "pcm",
        stream_format: "sse",
      };
      const events = await (await post("/audio/speech", JSON.stringify(body)))
        .text();
      assert.match(events, /event: error\ndata: \{"error":/);
      assert.doesNotMatch(events, /speech\.audio\.done/);
    },
  );

  await t.step(
    "a key without the right sees no model of the kind as forbidden",
    async () => {
      const { data } = await client.models.list();
      const ids = data.map(({ id }) => id);
      for (const id of [SPEECH.model, IMAGE.model, RECORDING]) {
        assert.ok(ids.includes(id), id);
      }
      const refused = client.chat.completions.create({
        model: IMAGE.model,
        messages: [{ role: "user", content: "hi" }],
      });
      await assert.rejects(refused, (error: unknown) => {
        assert.ok(error instanceof APIError);
        return error.status === 404 &&
          /images\/generations/.test(error.message);
      });
    },
  );
});
