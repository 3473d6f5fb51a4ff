/** Transcriptions: forms for model servers, and the texts that they send. */
import { Buffer } from "node:buffer";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { TranscriptionRequest } from "@gateway/shared/openai/media";
import { isJsonObject } from "@gateway/shared/process/error_text";
import {
  invalidAnswer,
  truncatedAnswer,
} from "@gateway/shared/upstream/errors";
import {
  type JsonObject,
  parseJson,
  textOf,
} from "@gateway/shared/upstream/json";
import type { ServerResponse } from "@gateway/shared/upstream/model_server";
import {
  ask,
  type Attempt,
  eventsOf,
  type ServerEvent,
  textIn,
  throwIfError,
} from "./attempt.ts";
import { encodeForm } from "./form.ts";
import { EVENT_STREAM } from "./media_answer.ts";

/** The usual rate of speech in MP3 files, to estimate the length of a recording that nobody states. */
const BYTES_PER_SECOND = 8_000;
const BYTES_MAX = MEDIA_LIMITS.transcriptBytesMax;
const DELTA = "transcript.text.delta";
const DONE = "transcript.text.done";
const JSON_FORMAT = /json$/;

type Call = Attempt<TranscriptionRequest>;

/**
 * Passes on the text of a model server: in the requested format or, with `stream`, as
 * events, whichever of the two the server sends.
 */
export function transcribe(attempt: Call): Promise<void> {
  const { request, server, answer: { call: { files } } } = attempt;
  const { language, prompt, response_format, temperature, stream } = request;
  // Events need JSON: speaches fills them with the requested format.
  const isText = stream && !JSON_FORMAT.test(response_format);
  // The model comes first, so that model servers can route what follows.
  const form = encodeForm({
    ...{ model: server.config.model, language, prompt },
    response_format: isText ? "json" : response_format,
    ...{ temperature, stream: stream ? "true" : undefined },
    "timestamp_granularities[]": request.timestamp_granularities,
    "include[]": request.include,
  }, files);
  const to = request.task === "translate" ? "translations" : "transcriptions";
  return ask(attempt, {
    ...{ to: `/audio/${to}`, ...form },
    accept: `application/json, ${EVENT_STREAM}, text/*`,
    // The text of a recording may not start before the whole recording was processed.
    mustBeginSoon: stream,
  }, (response) => {
    const estimate = secondsOf(files[0]?.content ?? new Uint8Array());
    return response.head.contentType === EVENT_STREAM
      ? passOnEvents(response, attempt, estimate)
      : passOnText(response, attempt, estimate);
  });
}

async function passOnText(
  response: ServerResponse,
  { request, answer }: Call,
  estimate: number,
): Promise<void> {
  const { contentType } = response.head;
  if (contentType === "text/html") {
    throw invalidAnswer("A web page instead of a transcription");
  }
  const text = await textIn(response, BYTES_MAX);
  const json = JSON_FORMAT.test(contentType) ? parseJson(text) : undefined;
  // Some servers send text even if JSON was requested, and others the reverse.
  const body: JsonObject = isJsonObject(json) ? json : { text };
  throwIfError(body, response.server);
  const isJson = JSON_FORMAT.test(request.response_format);
  if (isJson && typeof body.text !== "string") {
    throw invalidAnswer("A transcription without text");
  }
  answer.made = statedSeconds(body) ?? estimate;
  if (request.stream) {
    const said = textOf(body.text);
    await answer.writeEvent({ type: DELTA, delta: said });
    return await answer.writeEvent(doneEvent(said, body, answer.made));
  }
  if (isJson) {
    const usage = usageOf(body, answer.made);
    return await answer.write(JSON.stringify({ ...body, usage }));
  }
  const isText = request.response_format === "text";
  await answer.write(isText ? textOf(body.text) : text);
}

async function passOnEvents(
  response: ServerResponse,
  { request, answer }: Call,
  estimate: number,
): Promise<void> {
  answer.made = estimate;
  let said = "";
  let isForeign = false;
  const finish = (data: JsonObject) => {
    answer.made = statedSeconds(data) ?? estimate;
    const text = textOf(data.text) || said;
    if (request.stream) {
      const done = doneEvent(text, data, answer.made);
      return answer.writeEvent(done, response.deadlines);
    }
    const usage = usageOf(data, answer.made);
    const isJson = JSON_FORMAT.test(request.response_format);
    return answer.write(isJson ? JSON.stringify({ text, usage }) : text);
  };
  for await (const each of eventsOf(response, { bytesMax: BYTES_MAX })) {
    if (each.type === DONE) return await finish(each.data);
    const foreign = foreignDelta(each);
    isForeign ||= foreign !== null;
    const event = foreign === null
      ? { ...each.data, type: each.type }
      : { type: DELTA, delta: foreign };
    if (event.type === DELTA) said += textOf(event.delta);
    if (request.stream) await answer.writeEvent(event, response.deadlines);
  }
  // Such answers have no last event; a broken connection has been noticed already.
  if (!isForeign) throw truncatedAnswer("No last event");
  await finish({});
}

/** The text in an event of vLLM, which has the form of a chat's chunk, or of speaches, a segment without a type. */
function foreignDelta({ type, data }: ServerEvent): string | null {
  const [choice] = Array.isArray(data.choices) ? data.choices : [];
  if (isJsonObject(choice) && isJsonObject(choice.delta)) {
    return textOf(choice.delta.content);
  }
  return type === "" && typeof data.text === "string" ? data.text : null;
}

function doneEvent(text: string, about: JsonObject, seconds: number) {
  return { ...about, type: DONE, text, usage: usageOf(about, seconds) };
}

/** The usage that the server states, or the seconds of the recording. */
function usageOf({ usage }: JsonObject, seconds: number): unknown {
  return isJsonObject(usage) ? usage : { type: "duration", seconds };
}

/** Whole seconds, if the server states the length of the recording. */
function statedSeconds({ usage, duration }: JsonObject): number | null {
  const stated = isJsonObject(usage) && usage.type === "duration"
    ? usage.seconds
    : duration;
  const seconds = Number(stated ?? NaN);
  return Number.isFinite(seconds) && seconds >= 0 ? Math.ceil(seconds) : null;
}

/** Whole seconds of a recording: read from the head of a WAV file, else estimated by its size. */
function secondsOf(file: Uint8Array): number {
  const head = Buffer.from(file.buffer, file.byteOffset, file.length);
  const isWav = file.length >= 44 &&
    /^RIFF.{4}WAVEfmt /s.test(head.toString("latin1", 0, 16));
  // Channels, samples, bits: players ignore the rate of bytes, which may claim anything.
  const bits = isWav
    ? head.readUInt16LE(22) * head.readUInt32LE(24) * head.readUInt16LE(34)
    : 0;
  return Math.max(1, Math.ceil(file.length / (bits / 8 || BYTES_PER_SECOND)));
}
