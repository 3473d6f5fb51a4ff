/**
 * `POST /v1/audio/speech`: a melody, repeated for as long as its text takes to speak.
 *
 * `melody.wav` has four tones of 60 ms (262, 330, 392 and 440 Hz with an octave above
 * each, faded in and out over 8 ms) in one channel of 16 bits at 24 kHz, written by a
 * script. `melody.mp3` has the same, encoded by lamejs 1.2.7 at 64 kbit/s without a bit
 * reservoir, cut out of a longer repetition: ten frames that can follow each other in a
 * circle.
 */
import { Buffer } from "node:buffer";
import { speechBody } from "@gateway/shared/openai/media";
import { z } from "zod";
import { hashText, tokenize } from "../chat/language.ts";
import type { Planned } from "../serving/answer.ts";
import {
  lengthen,
  readControls,
  withoutControls,
} from "../serving/controls.ts";
import { readMedia, type Received } from "../serving/fields.ts";

const SAMPLE_RATE = 24_000;
const SAMPLE_BYTES = 2;
const CHAR_SECONDS = 0.07;
/** Spoken if the input has only phrases for the simulator. */
const NOTHING = "I am the gateway's model simulator.";

const WAV_HEAD_BYTES = 44;
/** Where the head has the bytes after the field, and those of the samples. */
const WAV_SIZE_AT = 4;
const WAV_DATA_SIZE_AT = 40;
const UINT32_MAX = 0xffff_ffff;
const MP3_FRAME_BYTES = 192;
const MP3_FRAME_SAMPLES = 576;

const WAV = readMelody("melody.wav");
const MP3 = readMelody("melody.mp3");

/** A melody in units that may follow each other in a circle, from any of them on. */
interface Melody {
  contentType: string;
  bytes: Uint8Array;
  unitBytes: number;
  unitSamples: number;
}

const PCM: Melody = {
  contentType: "audio/pcm",
  bytes: WAV.subarray(WAV_HEAD_BYTES),
  unitBytes: SAMPLE_BYTES,
  unitSamples: 1,
};
const MELODIES: Readonly<Record<"mp3" | "wav" | "pcm", Melody>> = {
  mp3: {
    contentType: "audio/mpeg",
    bytes: MP3,
    unitBytes: MP3_FRAME_BYTES,
    unitSamples: MP3_FRAME_SAMPLES,
  },
  wav: { ...PCM, contentType: "audio/wav" },
  pcm: PCM,
};

const spoken = speechBody.extend({
  response_format: z.enum(["mp3", "wav", "pcm"]).default("mp3"),
});

/** Plans the audio of an input. Throws an `ApiError` for an invalid request. */
export function speech(received: Received): Planned {
  const request = readMedia("speech", spoken, received);
  const { input, response_format: format, voice, speed = 1 } = request;
  const controls = readControls(input, "input");
  const words = withoutControls(input) || NOTHING;
  const tokens = lengthen(tokenize(words), controls);
  const charSamples = Math.round(SAMPLE_RATE * CHAR_SECONDS / speed);
  const melody = MELODIES[format];
  const pieces = soundsOf(tokens, {
    melody,
    charSamples,
    // Voices and inputs begin at different places of the melody.
    start: hashText(`${voice} ${words}`),
    head: format === "wav" ? wavHead(tokens, charSamples) : Buffer.alloc(0),
  });
  return { controls, contentType: melody.contentType, pieces };
}

interface SoundOptions {
  melody: Melody;
  charSamples: number;
  /** The unit of the melody to begin with, of any number. */
  start: number;
  /** Comes before the first sound. */
  head: Uint8Array;
}

/** The sound of each token, as long as its characters take. */
function* soundsOf(
  tokens: readonly string[],
  { melody, charSamples, start, head }: SoundOptions,
): Generator<Uint8Array> {
  const { bytes, unitBytes, unitSamples } = melody;
  const unitCount = bytes.length / unitBytes;
  let samples = 0;
  let unit = 0;
  for (const [index, token] of tokens.entries()) {
    samples += token.length * charSamples;
    const units: Uint8Array[] = index === 0 ? [head] : [];
    const unitEnd = Math.round(samples / unitSamples);
    while (unit < unitEnd) {
      // As many at once as are left in this round.
      const from = (start + unit) % unitCount;
      const count = Math.min(unitCount - from, unitEnd - unit);
      units.push(bytes.subarray(from * unitBytes, (from + count) * unitBytes));
      unit += count;
    }
    yield Buffer.concat(units);
  }
}

/** The head of the WAV file of these tokens, whose sizes have 32 bits. */
function wavHead(tokens: readonly string[], charSamples: number): Uint8Array {
  const bytes = tokens.join("").length * charSamples * SAMPLE_BYTES;
  const dataBytes = Math.min(bytes, UINT32_MAX - WAV_HEAD_BYTES);
  const head = Buffer.from(WAV.subarray(0, WAV_HEAD_BYTES));
  head.writeUInt32LE(dataBytes + WAV_HEAD_BYTES - 8, WAV_SIZE_AT);
  head.writeUInt32LE(dataBytes, WAV_DATA_SIZE_AT);
  return head;
}

function readMelody(name: string): Uint8Array {
  return Deno.readFileSync(new URL(name, import.meta.url));
}
