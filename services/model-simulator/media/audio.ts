/**
 * Audio: speech is a melody of the text and the voice; transcriptions describe the file
 * and go on with a passage.
 */
import { Buffer } from "node:buffer";
import { Mp3Encoder } from "@breezystack/lamejs";
import { fieldError } from "@gateway/shared/openai/error";
import { speechBody, transcriptionForm } from "@gateway/shared/openai/media";
import { ALL_FORMATS, BlobSource, Input } from "mediabunny";
import * as z from "zod";
import { hashText, tokenize } from "../chat/language.ts";
import PASSAGES from "../chat/passages.json" with { type: "json" };
import {
  eventAnswer,
  eventText,
  type Planned,
  wholeAnswer,
} from "../serving/answer.ts";
import {
  lengthen,
  readControls,
  withoutControls,
} from "../serving/controls.ts";
import { readMedia, type Received } from "../serving/fields.ts";

const SAMPLE_RATE = 24_000;
const SAMPLE_BYTES = 2;
const MP3_KILOBITS_PER_SECOND = 64;
const TYPES = { mp3: "audio/mpeg", wav: "audio/wav", pcm: "audio/pcm" };
/** The lowest tone of a voice. */
const HZ_MIN = 110;
const HZ_MAX = 330;
/** A pentatonic scale of two octaves: semitones that sound well in any order. */
const SCALE = [0, 2, 4, 7, 9, 12, 14, 16, 19, 21];
const CHAR_SECONDS = 0.07;
/** Without this fade, every tone would start and end with a click. */
const FADE_SECONDS = 0.008;
const LOUDNESS = 9_000;
/** Spoken if the input has only phrases for the simulator. */
const NOTHING = "I am the gateway's model simulator.";

const spoken = speechBody.extend({
  response_format: z.enum(["mp3", "wav", "pcm"]).default("mp3"),
});

/** Plans the audio of an input. Throws an `ApiError` for an invalid request. */
export function speech(received: Received): Planned {
  const request = readMedia("speech", spoken, received);
  const { input, response_format: format, voice, speed = 1 } = request;
  const controls = readControls(input, "input");
  const said = tokenize(withoutControls(input) || NOTHING);
  const tokens = lengthen(said, controls);
  const charSamples = Math.round(SAMPLE_RATE * CHAR_SECONDS / speed);
  const samples = tokens.join("").length * charSamples;
  const lowestHz = HZ_MIN + hashText(voice) % (HZ_MAX - HZ_MIN);
  const mp3 = new Mp3Encoder(1, SAMPLE_RATE, MP3_KILOBITS_PER_SECOND);
  const pieces = tokens.values().map((token, index) => {
    const sound = soundOf(token, lowestHz, charSamples);
    // The encoder returns signed bytes, whatever its types say.
    if (format === "mp3") return new Uint8Array(mp3.encodeBuffer(sound));
    const bytes = Buffer.from(sound.buffer);
    const isHead = format === "wav" && index === 0;
    return isHead ? Buffer.concat([wavHead(samples), bytes]) : bytes;
  });
  const end = () => format === "mp3" ? new Uint8Array(mp3.flush()) : "";
  return { controls, contentType: TYPES[format], pieces, end };
}

/** The tones of the characters of a token. A space is silent. */
function soundOf(token: string, lowestHz: number, charSamples: number) {
  const sound = new Int16Array(token.length * charSamples);
  for (const [index, char] of token.split("").entries()) {
    if (char === " ") continue;
    const semitones = SCALE[char.charCodeAt(0) % SCALE.length] ?? 0;
    const hz = lowestHz * 2 ** (semitones / 12);
    const radians = 2 * Math.PI * hz / SAMPLE_RATE;
    for (let at = 0; at < charSamples; at++) {
      const edge = Math.min(at, charSamples - at) / SAMPLE_RATE;
      const wave = Math.sin(radians * at) + Math.sin(2 * radians * at) / 3;
      const loudness = LOUDNESS * Math.min(1, edge / FADE_SECONDS);
      sound[index * charSamples + at] = loudness * wave;
    }
  }
  return sound;
}

/** The 44 bytes before the samples of a WAV file, whose size has 32 bits. */
function wavHead(samples: number): Uint8Array {
  const size = Math.min(samples * SAMPLE_BYTES, 0xffffffff - 36);
  const numbers = (...values: number[]) =>
    Buffer.from(Uint32Array.from(values).buffer);
  // The length of this part; PCM in one channel; the rates; 2 bytes of 16 bits.
  const rates = [SAMPLE_RATE, SAMPLE_RATE * SAMPLE_BYTES];
  const about = numbers(16, 0x0001_0001, ...rates, 0x0010_0002);
  return Buffer.concat([
    Buffer.from("RIFF"),
    numbers(36 + size),
    Buffer.from("WAVEfmt "),
    about,
    Buffer.from("data"),
    numbers(size),
  ]);
}

const transcription = transcriptionForm.extend({
  file: z.instanceof(File, { error: "a file" }),
});

/** Plans the text of a recording. Rejects with an `ApiError` for an invalid request. */
export async function transcribe(
  received: Received,
  task: "transcribe" | "translate" = "transcribe",
): Promise<Planned> {
  const request = readMedia("transcription", transcription, received);
  const { file, language = "en", response_format: format, stream } = request;
  const controls = readControls(request.prompt ?? "", "prompt");
  const duration = await secondsOf(file);
  const passage = PASSAGES[hashText(file.name) % PASSAGES.length];
  const said = tokenize(
    "I am the gateway's model simulator, not a real model. You sent " +
      `${file.name.slice(0, 80)}, ${duration.toFixed(1)} seconds long. ` +
      `Here is a passage instead. ${passage}`,
  );
  const tokens = lengthen(said, controls);
  const text = tokens.join("");
  const usage = controls.isUsageMissing
    ? undefined
    : { type: "duration", seconds: Math.ceil(duration) };
  const body = () => {
    const end = new Date(duration * 1_000).toISOString().slice(11, 23);
    const cue = `00:00:00.000 --> ${end}\n${text}\n`;
    if (format === "text") return `${text}\n`;
    if (format === "vtt") return `WEBVTT\n\n${cue}`;
    if (format === "srt") return `1\n${cue.replace(/\.(?=\d{3}\b)/g, ",")}`;
    const segments = [{ id: 0, start: 0, end: duration, text }];
    const verbose = { task, language, duration, segments };
    const more = format === "verbose_json" ? verbose : {};
    return JSON.stringify({ text, usage, ...more });
  };
  const events = tokens.values()
    .map((delta) => eventText("transcript.text.delta", { delta }));
  const done = () => eventText("transcript.text.done", { text, usage });
  const type = format.endsWith("json") ? undefined : "text/plain";
  return stream
    ? eventAnswer(controls, events, done)
    : wholeAnswer(controls, tokens, body, type);
}

/** The length of a recording. Rejects with an `ApiError` for other files. */
async function secondsOf(file: File): Promise<number> {
  const source = new BlobSource(file);
  const input = new Input({ formats: ALL_FORMATS, source });
  const seconds = await input.computeDuration().catch(() => 0);
  if (seconds > 0) return seconds;
  const message = "Invalid file format: expected a recording.";
  throw fieldError("invalid_request", "file", message);
}
