/** `POST /v1/audio/transcriptions` and `/translations`: a text about the recording. */
import { fieldError } from "@gateway/shared/openai/error";
import {
  transcriptionForm,
  transcriptionFormat,
} from "@gateway/shared/openai/media";
import { z } from "zod";
import { hashText, tokenize } from "../chat/language.ts";
import PASSAGES from "../chat/passages.json" with { type: "json" };
import {
  eventAnswer,
  eventText,
  type Planned,
  wholeAnswer,
} from "../serving/answer.ts";
import { lengthen, readControls } from "../serving/controls.ts";
import { readMedia, type Received } from "../serving/fields.ts";
import { secondsOf } from "./recording.ts";

const transcription = transcriptionForm.extend({
  language: z.string().default("en"),
  prompt: z.string().default(""),
  response_format: transcriptionFormat.default("json"),
  timestamp_granularities: z.array(z.enum(["word", "segment"]))
    .default(["segment"]),
  file: z.instanceof(File, { error: "a file" }),
});

/** `translate`: the text is in English, which the simulator's always is. */
type Task = "transcribe" | "translate";

/** Plans the text of a recording. Rejects with an `ApiError` for an invalid request. */
export async function transcribe(
  received: Received,
  task: Task = "transcribe",
): Promise<Planned> {
  const request = readMedia("transcription", transcription, received);
  const { file, language, response_format: format, stream, prompt } = request;
  const controls = readControls(prompt, "prompt");
  const seconds = secondsOf(await file.bytes());
  if (seconds === null) {
    const message = "Invalid file format: expected a recording.";
    throw fieldError("invalid_request", "file", message);
  }
  const passage = PASSAGES[hashText(file.name) % PASSAGES.length];
  const words = tokenize(
    "I am the gateway's model simulator, not a real model. You sent " +
      `${file.name.slice(0, 80)}, ${seconds.toFixed(1)} seconds long. ` +
      `Here is a passage instead. ${passage}`,
  );
  const tokens = lengthen(words, controls);
  const text = tokens.join("");
  const usage = controls.isUsageMissing
    ? undefined
    : { type: "duration", seconds: Math.ceil(seconds) };
  const endEvent = () => eventText("transcript.text.done", { text, usage });
  if (stream) {
    const events = tokens.values()
      .map((delta) => eventText("transcript.text.delta", { delta }));
    return eventAnswer(controls, events, { end: endEvent });
  }
  const granularities = request.timestamp_granularities;
  const transcript = { text, seconds, usage, task, language, granularities };
  return wholeAnswer(controls, {
    pieces: tokens,
    end: () => bodyOf(transcript, format),
    contentType: format.endsWith("json") ? undefined : "text/plain",
  });
}

interface Transcript {
  text: string;
  seconds: number;
  /** Undefined if a phrase of the prompt says that it is missing. */
  usage: object | undefined;
  task: Task;
  language: string;
  /** What has times in verbose JSON. */
  granularities: readonly ("word" | "segment")[];
}

/** The words of a text, each as long as its share of the characters. */
function wordsOf({ text, seconds }: Transcript): object[] {
  const second = (at: number) =>
    Math.round(seconds * at / text.length * 1_000) / 1_000;
  return [...text.matchAll(/\S+/g)].map(({ 0: word, index }) => ({
    word,
    start: second(index),
    end: second(index + word.length),
  }));
}

/** The body of an answer that is no stream. */
function bodyOf(
  transcript: Transcript,
  format: z.output<typeof transcriptionFormat>,
): string {
  const { text, seconds, usage, task, language, granularities } = transcript;
  const end = new Date(seconds * 1_000).toISOString().slice(11, 23);
  const cue = `00:00:00.000 --> ${end}\n${text}\n`;
  switch (format) {
    case "text":
      return `${text}\n`;
    case "vtt":
      return `WEBVTT\n\n${cue}`;
    case "srt":
      return `1\n${cue.replace(/\.(?=\d{3}\b)/g, ",")}`;
    case "json":
      return JSON.stringify({ text, usage });
    case "verbose_json": {
      const hasWords = granularities.includes("word");
      const hasSegments = granularities.includes("segment");
      const segments = [{ id: 0, start: 0, end: seconds, text }];
      return JSON.stringify({
        text,
        usage,
        task,
        language,
        duration: seconds,
        segments: hasSegments ? segments : undefined,
        words: hasWords ? wordsOf(transcript) : undefined,
      });
    }
  }
}
