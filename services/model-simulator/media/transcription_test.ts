import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { encodeAudio } from "./audio_encoder.ts";
import { assertRefused, startMedia } from "./ask_media_fixture.ts";

const model = "simulated-transcription-1";
const START = "I am the gateway's model simulator, not a real model. " +
  "You sent memo.wav, 2.5 seconds long. Here is a passage instead. ";

/** A recording of 2.5 seconds. */
async function recording(format: "wav" | "mp3" | "flac" = "wav") {
  async function* silence() {
    yield await Promise.resolve(new Int16Array(60_000));
  }
  const encoded = encodeAudio(format, silence(), 60_000);
  const chunks = await Array.fromAsync(encoded);
  return new File([Buffer.concat(chunks)], `memo.${format}`);
}

Deno.test("a transcription names the file and its length, and goes on with a passage", async () => {
  await using simulator = startMedia();
  for (const format of ["wav", "mp3", "flac"] as const) {
    const file = await recording(format);
    const { text, usage } = await simulator.client.audio.transcriptions.create({
      ...{ model, file },
    });
    assert.match(text, new RegExp(`You sent memo\\.${format}, 2\\.[456] s`));
    assert.ok(text.length > START.length + 200);
    assert.deepEqual(usage, { type: "duration", seconds: 3 });
  }
  const file = await recording();
  const translated = await simulator.client.audio.translations
    .create({ model, file });
  assert.ok(translated.text.startsWith(START));
});

Deno.test("a transcription has each format", async () => {
  await using simulator = startMedia();
  const file = await recording();
  const prompt = "[simulator: 31 tokens]";
  const ask = async (response_format: string, task = "transcriptions") => {
    const fields = { model, file, prompt, response_format };
    const response = await simulator.post(`/audio/${task}`, fields);
    return await response.text();
  };
  const { text } = JSON.parse(await ask("json"));
  assert.equal(await ask("text"), `${text}\n`);
  const span = (point: string) =>
    `00:00:00${point}000 --> 00:00:02${point}500\n${text}\n`;
  assert.equal(await ask("srt"), `1\n${span(",")}`);
  assert.equal(await ask("vtt"), `WEBVTT\n\n${span(".")}`);
  assert.deepEqual(JSON.parse(await ask("verbose_json")), {
    ...{ task: "transcribe", language: "en", duration: 2.5, text },
    segments: [{ id: 0, start: 0, end: 2.5, text }],
    usage: { type: "duration", seconds: 3 },
  });
  const other = JSON.parse(await ask("verbose_json", "translations"));
  assert.equal(other.task, "translate");
});

Deno.test("a stream of a transcription has its text in deltas", async () => {
  await using simulator = startMedia();
  const file = await recording();
  const stream = await simulator.client.audio.transcriptions.create({
    ...{ model, file, stream: true },
  });
  const events = await Array.fromAsync(stream);
  const done = events.at(-1);
  assert.ok(done?.type === "transcript.text.done");
  const deltas = events.map((event) =>
    event.type === "transcript.text.delta" ? event.delta : ""
  );
  assert.equal(deltas.join(""), done.text);
  assert.ok(done.text.startsWith(START));
});

Deno.test("a wrong request for a transcription is refused", async () => {
  await using simulator = startMedia();
  const file = await recording();
  const start = Buffer.from(await file.slice(0, 1_000).arrayBuffer());
  const named = (bytes: BlobPart[]) => ({ file: new File(bytes, "memo.wav") });
  const send = (change: object) =>
    simulator.post("/audio/transcriptions", { model, file, ...change });
  await assertRefused(send, [
    [{ model: "whisper-1" }, 404, "model"],
    [{ file: "memo.wav" }, 400, "file"],
    [named(["no sound"]), 400, "file"],
    [named([]), 400, "file"],
    [named([start.subarray(0, 20)]), 400, "file"],
    [{ response_format: "xml" }, 400, "response_format"],
    [named([new Uint8Array(26_214_401)]), 413, null],
    [named([new Uint8Array(26_214_400)]), 400, "file"],
  ]);
});
