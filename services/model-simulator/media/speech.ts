/** `POST /v1/audio/speech`: each character is a tone, so that length and melody follow the text. */
import { Buffer } from "node:buffer";
import { isJsonObject } from "@gateway/shared/process/error_text";
import * as z from "zod";
import { tokenize } from "../chat/language.ts";
import {
  lengthen,
  readControls,
  withoutControls,
} from "../serving/controls.ts";
import { readMedia, type Received } from "../serving/fields.ts";
import * as run from "../serving/run.ts";
import { AUDIO_TYPES, encodeAudio, SAMPLE_RATE } from "./audio_encoder.ts";

/** The lowest tone of each voice, in Hz. */
const VOICES: Readonly<Record<string, number>> = {
  ...{ alloy: 196, echo: 147, fable: 247, nova: 262, onyx: 110, shimmer: 330 },
};
const INPUT_CHARS_MAX = 4_096;
/** A pentatonic scale of two octaves: semitones that sound well in any order. */
const SCALE = [0, 2, 4, 7, 9, 12, 14, 16, 19, 21];
const CHAR_SECONDS = 0.07;
/** Without this fade, every tone would start and end with a click. */
const FADE_SECONDS = 0.008;
const LOUDNESS = 9_000;
/** Spoken if the input has only phrases for the simulator. */
const NOTHING = "I am the gateway's model simulator.";

const schema = z.object({
  input: z.string().min(1).max(INPUT_CHARS_MAX),
  voice: z.preprocess(
    (voice) => isJsonObject(voice) ? voice.id : voice,
    z.enum(Object.keys(VOICES)),
  ),
  response_format: z.enum(["mp3", "flac", "wav", "pcm"]).default("mp3"),
  speed: z.number().min(0.25).max(4).default(1),
  stream_format: z.enum(["audio", "sse"]).default("audio"),
});

/** Plans the audio of an input. Throws an `HttpError` for an invalid request. */
export function speech(received: Received): run.Planned {
  const request = readMedia("speech", schema, received);
  const { input, response_format: format, voice, speed } = request;
  const controls = readControls(input, "input");
  const said = tokenize(withoutControls(input) || NOTHING);
  const tokens = lengthen(said, controls);
  const charSamples = Math.round(SAMPLE_RATE * CHAR_SECONDS / speed);
  const samples = tokens.join("").length * charSamples;
  const input_tokens = tokenize(input).length;
  const output_tokens = tokens.length;
  const total_tokens = input_tokens + output_tokens;
  const usage = { input_tokens, output_tokens, total_tokens };
  const done = controls.isUsageMissing ? {} : { usage };
  return {
    controls,
    answer: (pacing) => {
      const sounds = tokens.values()
        .map((token) => soundOf(token, VOICES[voice] ?? 0, charSamples));
      const pieces = encodeAudio(format, pacing.run(sounds), samples);
      if (request.stream_format === "audio") {
        const contentType = AUDIO_TYPES[format];
        return { contentType, pieces: pacing.ending(pieces, () => "") };
      }
      const end = () => run.eventText("speech.audio.done", done);
      return run.eventAnswer(pacing, eventsOf(pieces), end);
    },
  };
}

async function* eventsOf(pieces: AsyncIterable<Uint8Array>) {
  for await (const piece of pieces) {
    const audio = Buffer.from(piece).toString("base64");
    yield run.eventText("speech.audio.delta", { audio });
  }
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
