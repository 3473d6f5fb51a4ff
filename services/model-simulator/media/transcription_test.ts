import assert from "node:assert/strict";
import { assertRefused, recording, startMedia } from "./ask_media_fixture.ts";

const model = "simulated-transcription-1";
const START = "I am the gateway's model simulator, not a real model. " +
  "You sent memo.wav, 2.5 seconds long. Here is a passage instead. ";

Deno.test("a transcription names the file and its length, in each format", async () => {
  await using simulator = startMedia();
  const file = await recording(simulator);
  const prompt = "[simulator: 31 tokens]";
  const ask = async (response_format: string, task = "transcriptions") => {
    const fields = { model, file, prompt, response_format };
    const response = await simulator.post(`/audio/${task}`, fields);
    return await response.text();
  };
  const { text, usage } = JSON.parse(await ask("json"));
  assert.ok(START.startsWith(text), text);
  assert.deepEqual(usage, { type: "duration", seconds: 3 });
  assert.equal(await ask("text"), `${text}\n`);
  const span = (point: string) =>
    `00:00:00${point}000 --> 00:00:02${point}500\n${text}\n`;
  assert.equal(await ask("srt"), `1\n${span(",")}`);
  assert.equal(await ask("vtt"), `WEBVTT\n\n${span(".")}`);
  assert.deepEqual(JSON.parse(await ask("verbose_json")), {
    ...{ task: "transcribe", language: "en", duration: 2.5, text, usage },
    segments: [{ id: 0, start: 0, end: 2.5, text }],
  });
  const other = JSON.parse(await ask("verbose_json", "translations"));
  assert.equal(other.task, "translate");
  const mp3 = await recording(simulator, "mp3");
  const heard = await simulator.client.audio.transcriptions
    .create({ model, file: mp3 });
  assert.match(heard.text, /You sent memo\.mp3, 2\.[456] s/);
});

Deno.test("a stream of a transcription has its text in deltas", async () => {
  await using simulator = startMedia();
  const file = await recording(simulator);
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
  assert.ok(done.text.length > START.length + 200);
});

Deno.test("a wrong request for a transcription is refused", async () => {
  await using simulator = startMedia();
  const file = await recording(simulator);
  const named = (bytes: BlobPart[]) => ({ file: new File(bytes, "memo.wav") });
  const send = (change: object) =>
    simulator.post("/audio/transcriptions", { model, file, ...change });
  await assertRefused(send, [
    [{ model: "whisper-1" }, 404, "model"],
    [{ file: "memo.wav" }, 400, "file"],
    [named(["no sound"]), 400, "file"],
    [named([]), 400, "file"],
    [named([file.slice(0, 20)]), 400, "file"],
    [{ response_format: "xml" }, 400, "response_format"],
  ]);
});
