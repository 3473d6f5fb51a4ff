/**
 * The files themselves, which the checks of tests/e2e/media
 * do not show through the gateway.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { inflateSync } from "node:zlib";
import { bytesOf, recording, startTestSimulator } from "../ask_fixture.ts";
import { FILM_SECONDS, filmOf } from "./film.ts";
import { pictureOf } from "./picture.ts";
import { secondsOf } from "./recording.ts";
import { image, speech, text, video } from "./requests_fixture.ts";

/** The sizes at the edges of what is offered, and those of OpenAI. */
const SIZES = [
  { width: 16, height: 16 },
  { width: 18, height: 3_840 },
  { width: 720, height: 1_280 },
  { width: 1_024, height: 1_792 },
  { width: 1_920, height: 1_080 },
  { width: 3_840, height: 3_840 },
];

const FILM_SIZE = { width: 720, height: 1_280 };

/** The content of the first chunk of a PNG file with this type. */
function chunkOf(png: Buffer, type: string): Buffer {
  const at = png.indexOf(type, 0, "latin1");
  assert.ok(at > 0, type);
  return png.subarray(at + 4, at + 4 + png.readUInt32BE(at - 4));
}

Deno.test("a picture has the size, whole rows, and a colour of its words", () => {
  const colours = new Set<string>();
  for (const size of SIZES) {
    for (const scene of [{ words: "A fox" }, { words: "A fox", seed: "1" }]) {
      const png = Buffer.from(pictureOf({ ...size, ...scene }));
      const head = chunkOf(png, "IHDR");
      assert.equal(head.readUInt32BE(0), size.width);
      assert.equal(head.readUInt32BE(4), size.height);
      const rows = inflateSync(chunkOf(png, "IDAT"));
      const rowBytes = 1 + Math.ceil(size.width / 8);
      assert.equal(rows.length, size.height * rowBytes);
      assert.ok(rows.every((byte) => byte === 0));
      colours.add(chunkOf(png, "PLTE").toString("hex"));
    }
  }
  assert.equal(colours.size, 2);
  const half = { width: 16, height: 16, words: "A fox", finished: 0.5 };
  const rows = inflateSync(chunkOf(Buffer.from(pictureOf(half)), "IDAT"));
  assert.equal(rows.toString("hex"), "000000".repeat(8) + "00ffff".repeat(8));
});

/** What the boxes of an MP4 file say. */
function aboutFilm(film: Buffer) {
  const boxAt = (type: string) => film.indexOf(type, 0, "latin1") + 4;
  const times = boxAt("mvhd") + 12;
  // Skips the head of the table and that of its only entry.
  const size = boxAt("stsd") + 16;
  return {
    seconds: film.readUInt32BE(times + 4) / film.readUInt32BE(times),
    width: film.readUInt16BE(size + 24),
    height: film.readUInt16BE(size + 26),
    /** Where the first frame begins, and the sizes of all. */
    firstAt: film.readUInt32BE(boxAt("stco") + 8),
    sizes: Array.from(
      { length: film.readUInt32BE(boxAt("stsz") + 8) },
      (_, nth) => film.readUInt32BE(boxAt("stsz") + 12 + 4 * nth),
    ),
    bytes: film.length,
  };
}

for (const length of FILM_SECONDS) {
  Deno.test(`a film of ${length} seconds has its frames where its head says`, () => {
    const film = Buffer.from(filmOf(length));
    const about = aboutFilm(film);
    const { width, height, seconds } = about;
    assert.deepEqual({ width, height }, FILM_SIZE);
    assert.equal(seconds, Number(length));
    assert.equal(about.sizes.length, seconds);
    let at = about.firstAt;
    for (const bytes of about.sizes) {
      assert.equal(film.readUInt32BE(at), bytes - 4);
      const unit = film.subarray(at + 4, at + bytes);
      // Decoders would take this for the beginning of another unit.
      assert.equal(unit.indexOf(Buffer.alloc(2)), -1);
      at += bytes;
    }
    assert.equal(at, film.length);
  });
}

Deno.test("images are PNG files of the size, which differ", async () => {
  await using simulator = startTestSimulator();
  const make = async (change: object = {}) => {
    const fields = { ...image, n: 2, ...change };
    return await (await simulator.post("/images/generations", fields)).json();
  };
  const { data, size, usage, created } = await make();
  assert.ok(Math.abs(created - Date.now() / 1_000) < 60);
  assert.equal(size, "96x64");
  assert.deepEqual(usage, {
    input_tokens: 3,
    output_tokens: 12,
    total_tokens: 15,
    input_tokens_details: { text_tokens: 3, image_tokens: 0 },
  });
  const [again, other] = [await make(), await make({ prompt: "B" })];
  const all = [...data, ...again.data, ...other.data];
  const files = all.map(({ b64_json }) => b64_json);
  assert.equal(new Set(files).size, 4);
  const auto = await make({ n: 1, size: "auto" });
  const png = Buffer.from(auto.data[0].b64_json, "base64");
  assert.equal(png.toString("latin1", 1, 4), "PNG");
  const head = chunkOf(png, "IHDR");
  assert.deepEqual([head.readUInt32BE(0), head.readUInt32BE(4)], [1024, 1024]);
});

Deno.test("speech has the length of its text, and text and voice decide how it begins", async () => {
  await using simulator = startTestSimulator();
  const speak = async (change: object) =>
    (await bytesOf(
      await simulator.post("/audio/speech", { ...speech, ...change }),
    )).bytes;
  const pcm = (change: object = {}) =>
    speak({ response_format: "pcm", ...change });
  /** 18 characters, each 70 ms. */
  const seconds = 1.26;
  for (const speed of [1, 2]) {
    const mp3 = Buffer.from(await speak({ speed }));
    const frames = mp3.length / 192;
    const heads = Array.from(
      { length: frames },
      (_, nth) => mp3.readUInt32BE(192 * nth),
    );
    // MPEG-2, layer III, 64 kbit/s, 24 kHz, one channel: 24 ms.
    assert.ok(heads.every((head) => head === 0xfff384c4));
    const off = frames * 0.024 - seconds / speed;
    assert.ok(Math.abs(off) < 0.024, `${off}`);
  }
  const sound = await pcm();
  assert.equal(sound.length, 2 * 24_000 * seconds);
  const samples = new Int16Array(new Uint8Array(sound).buffer);
  const loudest = samples.reduce((max, each) => Math.max(max, each), 0);
  assert.ok(loudest > 5_000 && loudest < 20_000, `${loudest}`);
  assert.deepEqual(sound, await pcm());
  assert.notDeepEqual(sound, await pcm({ voice: { id: "nova" } }));
  assert.notDeepEqual(sound, await pcm({ input: "A river is narrow." }));
  const wav = await pcm({ response_format: "wav" });
  assert.deepEqual(wav.subarray(44), sound);
  assert.equal(secondsOf(wav), seconds);
  // A phrase is not spoken, and sets the length.
  const input = "Tick [simulator: 5 tokens]";
  assert.equal((await pcm({ input })).length, 2 * 24_000 * 5 * 4 * 0.07);
});

Deno.test("recordings are known by their first bytes", () => {
  const kilobytes = (head: string) =>
    Buffer.concat([Buffer.from(head, "latin1"), Buffer.alloc(8_000)]);
  const heads = ["OggS", "fLaC", "ID3", "\0\0\0 ftyp", "\x1aE\xdf\xa3"];
  for (const head of [...heads, "\xff\xfb", "\xff\xf3"]) {
    const seconds = secondsOf(kilobytes(head));
    assert.ok(seconds !== null && Math.abs(seconds - 1) < 0.01, head);
  }
  // The end of a JPEG, text, WAV without samples.
  for (const head of ["\xff\xd9", "no sound", "RIFF\0\0\0\0WAVE", ""]) {
    assert.equal(secondsOf(kilobytes(head)), null, head);
  }
  assert.equal(secondsOf(Buffer.from("OggS")), null);
});

Deno.test("a transcription names the file and its length, in each format", async () => {
  await using simulator = startTestSimulator();
  const file = await recording(simulator);
  const prompt = "[simulator: 31 tokens]";
  const ask = async (response_format: string, task = "transcriptions") => {
    const fields = { ...text, file, prompt, response_format };
    const response = await simulator.post(`/audio/${task}`, fields);
    return await response.text();
  };
  const passage = "I am the gateway's model simulator, not a real model. " +
    "You sent memo.wav, 2.5 seconds long. Here is a passage instead";
  const usage = { type: "duration", seconds: 3 };
  assert.deepEqual(JSON.parse(await ask("json")), { text: passage, usage });
  assert.equal(await ask("text"), `${passage}\n`);
  const span = (point: string) =>
    `00:00:00${point}000 --> 00:00:02${point}500\n${passage}\n`;
  assert.equal(await ask("srt"), `1\n${span(",")}`);
  assert.equal(await ask("vtt"), `WEBVTT\n\n${span(".")}`);
  assert.deepEqual(JSON.parse(await ask("verbose_json", "translations")), {
    task: "translate",
    language: "en",
    duration: 2.5,
    text: passage,
    usage,
    segments: [{ id: 0, start: 0, end: 2.5, text: passage }],
  });
});

Deno.test("words have times when they are asked for, up to the end of the recording", async () => {
  await using simulator = startTestSimulator();
  const file = await recording(simulator);
  const response = await simulator.post("/audio/transcriptions", {
    ...text,
    file,
    response_format: "verbose_json",
    "timestamp_granularities[]": "word",
  });
  const answer = await response.json();
  const words: { word: string; start: number; end: number }[] = answer.words;
  assert.equal(words.map(({ word }) => word).join(" "), answer.text);
  assert.ok(words.every(({ start, end }) => start < end));
  assert.ok(words.every(({ start }, at) => start >= (words[at - 1]?.end ?? 0)));
  assert.deepEqual([words[0]?.start, words.at(-1)?.end], [0, 2.5]);
  assert.equal(answer.segments, undefined);
});

/** A simulator whose clock stands still until it is set. */
function startVideos() {
  let now = 1_800_000_000_000;
  const simulator = startTestSimulator({ now: () => now });
  return {
    ...simulator,
    wait(seconds: number): void {
      now += seconds * 1_000;
    },
    create: async (change: object) =>
      await (await simulator.post("/videos", { ...video, ...change })).json(),
    get: (path: string) => fetch(`${simulator.url}/videos/${path}`),
  };
}

Deno.test("a video job advances with time, with every member of OpenAI's object", async () => {
  await using simulator = startVideos();
  const { model } = video;
  const job = await simulator.create({ prompt: "A fox" });
  assert.match(job.id, /^video_[0-9a-f]{32}$/);
  const expected = {
    id: job.id,
    object: "video",
    model,
    prompt: "A fox",
    seconds: "4",
    status: "queued",
    progress: 0,
    size: "96x64",
    error: null,
    created_at: 1_800_000_000,
    expires_at: null,
    completed_at: null,
    remixed_from_video_id: null,
  };
  assert.deepEqual(job, expected);
  const completed_at = 1_800_000_002;
  const states: {
    waitSeconds: number;
    change: object;
    contentStatus: number;
  }[] = [
    {
      waitSeconds: 0.4,
      change: { status: "queued", progress: 20 },
      contentStatus: 404,
    },
    {
      waitSeconds: 0.2,
      change: { status: "in_progress", progress: 30 },
      contentStatus: 404,
    },
    {
      waitSeconds: 1.3,
      change: { status: "in_progress", progress: 95 },
      contentStatus: 404,
    },
    {
      waitSeconds: 0.2,
      change: { status: "completed", progress: 100, completed_at },
      contentStatus: 200,
    },
  ];
  for (const { waitSeconds, change, contentStatus } of states) {
    simulator.wait(waitSeconds);
    const state = await (await simulator.get(job.id)).json();
    assert.deepEqual(state, { ...expected, ...change });
    const { status, body } = await simulator.get(`${job.id}/content`);
    await body?.cancel();
    assert.equal(status, contentStatus);
  }
});

Deno.test("a video is an MP4 file of the length, until a hundred others are made", async () => {
  await using simulator = startVideos();
  const { id } = await simulator.create({});
  const two = await simulator.create({});
  for (const [variant, width] of [["thumbnail", 96], ["spritesheet", 384]]) {
    const url = `${id}/content?variant=${variant}`;
    const { bytes } = await bytesOf(await simulator.get(url));
    assert.equal(chunkOf(bytes, "IHDR").readUInt32BE(0), width);
  }
  // Made at the same time.
  const files = [id, two.id].map((id) => simulator.get(`${id}/content`));
  const [film, other] = await Promise.all(
    files.map(async (each) => (await bytesOf(await each)).bytes),
  );
  assert.deepEqual(film, other);
  assert.equal(aboutFilm(film ?? assert.fail()).seconds, 4);
  const statusAfter = async (count: number) => {
    for (let index = 0; index < count; index++) await simulator.create({});
    const response = await simulator.get(id);
    await response.body?.cancel();
    return response.status;
  };
  assert.deepEqual([await statusAfter(98), await statusAfter(1)], [200, 404]);
});
