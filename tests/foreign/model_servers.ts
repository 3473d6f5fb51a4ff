// Promise: the gateway works with model servers that nobody here wrote, which show
// what our own stand-ins cannot: chat, and images, speech, transcriptions and videos,
// with OpenAI's SDK. Run by `deno task test:foreign`.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import OpenAI, { APIError } from "openai";
import { checkSdk } from "../compat/sdk_checks.ts";
import { startCluster } from "../support/cluster.ts";
import { until } from "../support/wait_for.ts";
import { type ForeignServer, installedServers } from "./servers.ts";

const PIXEL = "red pixel";
const TEXT = "Good morning from a mock.";

const installed = await installedServers();
if (installed.length === 0) throw new Error("No model server is installed");

for (const software of installed) {
  const { name, dialect, hasMedia } = software;
  /** Runs `check` on a cluster in front of the server. */
  const test = (
    what: string,
    envOf: (server: ForeignServer) => Record<string, string>,
    check: typeof checkMedia,
  ) =>
    Deno.test(`${what} of ${name}`, async (t) => {
      await using server = await software.start();
      await using cluster = await startCluster({ env: envOf(server) });
      const scopes = "--scopes=chat,models,image,speech,video";
      const { key: apiKey } = await cluster.createKey(scopes);
      const baseURL = cluster.baseUrl();
      await check(t, new OpenAI({ baseURL, apiKey, maxRetries: 0 }));
    });
  test("chat", ({ baseUrl, model }) => ({
    UPSTREAM_BASE_URL: baseUrl,
    UPSTREAM_MODEL: model,
    UPSTREAM_DIALECT: dialect,
  }), (t, client) => checkSdk(t, client, software));
  if (!hasMedia) continue;
  const file = await Deno.makeTempFile({ suffix: ".json" });
  test("images, speech, transcriptions and videos", (server) => {
    Deno.writeTextFileSync(file, modelsOf(server));
    return { MODELS_FILE: file };
  }, checkMedia);
}

/** A models file with one model of each kind, named like the kind. */
function modelsOf({ baseUrl }: ForeignServer): string {
  const names = { image: "gpt-image-1", speech: "gpt-4o-mini-tts" };
  const others = { transcription: "gpt-4o-transcribe", video: "sora-2" };
  const kinds = { ...names, ...others };
  const models = Object.entries(kinds).map(([kind, model]) => ({
    ...{ id: kind, kind },
    backends: [{ type: "openai", base_url: baseUrl, model }],
  }));
  return JSON.stringify({ models });
}

async function checkMedia(t: Deno.TestContext, client: OpenAI): Promise<void> {
  const image = { model: "image", prompt: "A pixel" };
  const isPixel = (base64: string | undefined) => {
    const bytes = Buffer.from(base64 ?? "", "base64");
    assert.equal(bytes.toString("latin1", 1, 4), "PNG");
    return bytes;
  };
  await t.step("pictures, whole and as events", async () => {
    const { data: [drawn] = [] } = await client.images.generate(image);
    isPixel(drawn?.b64_json);
    assert.match(drawn?.revised_prompt ?? "", new RegExp(PIXEL));
    const stream = await client.images.generate({ ...image, stream: true });
    const events = await Array.fromAsync(stream);
    const [event] = events;
    assert.equal(events.length, 1);
    assert.ok(event?.type === "image_generation.completed");
    assert.equal(event.b64_json, drawn?.b64_json);
    assert.ok(event.usage.total_tokens > 0);
  });
  await t.step("edited pictures, whole and as events", async () => {
    const { data: [drawn] = [] } = await client.images.generate(image);
    const bytes = isPixel(drawn?.b64_json);
    const file = new File([bytes], "a.png", { type: "image/png" });
    const edit = { ...image, image: [file, file], mask: file };
    const { data: [edited] = [] } = await client.images.edit(edit);
    isPixel(edited?.b64_json);
    const stream = await client.images.edit({ ...edit, stream: true });
    const types = (await Array.fromAsync(stream)).map(({ type }) => type);
    assert.deepEqual(types, ["image_edit.completed"]);
  });
  await t.step("a refusal has its status and no internals", async () => {
    const refused = client.images.generate({ ...image, prompt: "limit" });
    await assert.rejects(refused, (error: unknown) => {
      assert.ok(error instanceof APIError);
      assert.equal(error.status, 429);
      assert.doesNotMatch(error.message, /srv/);
      return true;
    });
  });
  await t.step("speech, whole and as events", async () => {
    const ask = { model: "speech", voice: "alloy", input: "Good morning." };
    const whole = await client.audio.speech.create(ask);
    assert.equal(whole.headers.get("content-type"), "audio/mpeg");
    const sound = Buffer.from(await whole.arrayBuffer());
    assert.match(sound.toString(), /sound of a mock/);
    const stream = { ...ask, stream_format: "sse" } as const;
    const events = await (await client.audio.speech.create(stream)).text();
    assert.match(events, new RegExp(sound.toBase64()));
    assert.match(events, /speech\.audio\.done.*"usage"/);
  });
  await t.step("transcriptions in the formats that it has", async () => {
    const file = new File([new Uint8Array(16_000)], "a.mp3");
    const ask = { model: "transcription", file };
    const { transcriptions, translations } = client.audio;
    assert.equal((await transcriptions.create(ask)).text, TEXT);
    const as = <F extends "verbose_json" | "text">(response_format: F) => ({
      ...{ ...ask, response_format },
    });
    const verbose = await transcriptions.create(as("verbose_json"));
    assert.equal(verbose.duration, 2.5);
    const plain = await transcriptions.create(as("text"));
    assert.equal(String(plain).trim(), TEXT);
    const stream = await transcriptions.create({ ...ask, stream: true });
    const events = await Array.fromAsync(stream);
    const deltas = events.map((event) => "delta" in event ? event.delta : "");
    assert.equal(deltas.join(""), TEXT);
    assert.equal(events.at(-1)?.type, "transcript.text.done");
    const translated = await translations.create(ask);
    assert.equal(translated.text, "Good morning, translated.");
  });
  await t.step("a video whose file is elsewhere", async () => {
    const made = await client.videos.create({
      ...{ model: "video", prompt: "A kite", seconds: "4" },
      size: "1280x720",
    });
    assert.match(made.id, /^video_[0-9a-f]{32}$/);
    const retrieve = () => client.videos.retrieve(made.id);
    await until(async () => (await retrieve()).status === "completed", 10_000);
    const { data } = await client.videos.list();
    assert.deepEqual(data.map(({ id }) => id), [made.id]);
    // It has no path for files, and names one on a host that is not its own.
    await assert.rejects(client.videos.downloadContent(made.id), (error) => {
      assert.ok(error instanceof APIError);
      assert.equal(error.status, 502);
      assert.doesNotMatch(error.message, /example\.com/);
      return true;
    });
    await client.videos.delete(made.id);
    await assert.rejects(client.videos.retrieve(made.id), { status: 404 });
  });
}
