/** Transcriptions and translations: they describe the file and continue with a passage. */
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
import { lengthen, readControls } from "../serving/controls.ts";
import { HttpError } from "../serving/errors.ts";
import { flag, readMedia, type Received } from "../serving/fields.ts";

const schema = z.object({
  file: z.instanceof(File, { error: "a file" }),
  prompt: z.string().default(""),
  language: z.string().default("en"),
  response_format: z.enum(["json", "text", "srt", "verbose_json", "vtt"])
    .default("json"),
  stream: flag,
});

/** Plans the text of a recording. Rejects with an `HttpError` for an invalid request. */
export async function write(
  received: Received,
  task: "transcribe" | "translate",
): Promise<Planned> {
  const request = readMedia("transcription", schema, received);
  const { file, language, response_format: format, stream } = request;
  const controls = readControls(request.prompt, "prompt");
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

/** The length of a recording. Rejects with an `HttpError` for other files. */
async function secondsOf(file: File): Promise<number> {
  const source = new BlobSource(file);
  const input = new Input({ formats: ALL_FORMATS, source });
  const track = await input.getPrimaryAudioTrack().catch(() => null);
  const seconds = await track?.computeDuration().catch(() => 0);
  if (seconds) return seconds;
  const message = "Invalid file format: expected a recording.";
  throw new HttpError(message, { param: "file" });
}
