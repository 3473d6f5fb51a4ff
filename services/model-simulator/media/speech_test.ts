import assert from "node:assert/strict";
import { ALL_FORMATS, BufferSource, Input } from "mediabunny";
import { assertRefused, bytesOf, startMedia } from "./ask_media_fixture.ts";

const model = "simulated-speech-1";
const speech = { model, voice: "alloy", input: "The river is wide." };
/** 18 characters, each 70 ms. */
const SECONDS = 1.26;

Deno.test("POST /v1/audio/speech makes a file of each format whose length follows text and speed", async () => {
  await using simulator = startMedia();
  for (const format of ["mp3", "wav"] as const) {
    for (const speed of [1, 2]) {
      const response = await simulator.client.audio.speech.create({
        ...speech,
        ...{ response_format: format, speed },
      });
      const type = format === "mp3" ? "audio/mpeg" : `audio/${format}`;
      assert.equal(response.headers.get("content-type"), type);
      const source = new BufferSource(await response.bytes());
      const input = new Input({ source, formats: ALL_FORMATS });
      const off = await input.computeDuration() - SECONDS / speed;
      assert.ok(Math.abs(off) < 0.1, `${format}: ${off}`);
    }
  }
});

Deno.test("pcm is 24 kHz, 16 bits, mono; voice and text change the sound", async () => {
  await using simulator = startMedia();
  const pcm = async (change: object = {}) => {
    const body = { ...speech, response_format: "pcm", ...change };
    const { bytes } = await bytesOf(
      await simulator.post("/audio/speech", body),
    );
    return bytes;
  };
  const sound = await pcm();
  assert.equal(sound.length, 2 * 24_000 * SECONDS);
  const samples = new Int16Array(new Uint8Array(sound).buffer);
  const loudest = samples.reduce((max, each) => Math.max(max, each), 0);
  assert.ok(loudest > 5_000 && loudest < 20_000, `${loudest}`);
  assert.deepEqual(sound, await pcm());
  assert.notDeepEqual(sound, await pcm({ voice: { id: "nova" } }));
  assert.notDeepEqual(sound, await pcm({ input: "A river is narrow." }));
  const wav = await pcm({ response_format: "wav" });
  assert.deepEqual(wav.subarray(44), sound);
  // A phrase is not spoken, and sets the length.
  const input = "Tick [simulator: 5 tokens]";
  assert.equal((await pcm({ input })).length, 2 * 24_000 * 5 * 4 * 0.07);
});

Deno.test("speech begins to arrive long before it ends", async () => {
  await using simulator = startMedia();
  for (const response_format of ["pcm", "mp3"]) {
    const input = `${speech.input} [simulator: stall after 4 tokens]`;
    const body = { ...speech, input, response_format };
    const leaving = new AbortController();
    const response = await simulator.post("/audio/speech", body, {
      signal: leaving.signal,
    });
    const first = await response.body?.getReader().read();
    assert.ok(first?.value?.length);
    leaving.abort();
    assert.equal(await simulator.seen.at(-1)?.ended, "left");
  }
});

Deno.test("a wrong request for speech is refused", async () => {
  await using simulator = startMedia();
  const send = (change: object) =>
    simulator.post("/audio/speech", { ...speech, ...change });
  await assertRefused(send, [
    [{ model: "neutral-3.7-plus" }, 404, "model"],
    [{ voice: null }, 400, "voice"],
    [{ input: "" }, 400, "input"],
    [{ input: "x".repeat(4_097) }, 400, "input"],
    [{ input: "[simulator: sing]" }, 400, "input"],
    [{ response_format: "opus" }, 400, "response_format"],
    [{ speed: 4.1 }, 400, "speed"],
  ]);
});
