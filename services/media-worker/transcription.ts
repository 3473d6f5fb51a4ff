/** Transcriptions: forms for model servers, and the texts that they send. */
import { Buffer } from "node:buffer";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { TranscriptionRequest } from "@gateway/shared/openai/media";
import { isJsonObject } from "@gateway/shared/process/error_text";
import {
  invalidAnswer,
  truncatedAnswer,
} from "@gateway/shared/upstream/errors";
import * as json from "@gateway/shared/upstream/json";
import type { ServerResponse } from "@gateway/shared/upstream/model_server";
import type { Attempt, ServerEvent } from "./attempt.ts";
import { ask, eventsOf, textIn, throwIfError } from "./attempt.ts";
import { encodeForm } from "./form.ts";
import { EVENT_STREAM } from "./media_answer.ts";

/** The usual rate of speech in MP3 files, to estimate the length of a recording if it is not stated. */
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
  }, (response) => passOn(response, attempt));
}

async function passOn(
  response: ServerResponse,
  { request, answer }: Call,
): Promise<void> {
  const [file] = answer.call.files;
  const estimate = secondsOf(file?.content ?? new Uint8Array());
  const isJson = JSON_FORMAT.test(request.response_format);
  const isEvents = response.head.contentType === EVENT_STREAM;
  const parts = isEvents ? eventsIn(response) : documentIn(response, isJson);
  let said = "";
  for await (const { type, data } of parts) {
    answer.made = estimate;
    if (type !== DONE) {
      if (type === DELTA) said += json.textOf(data.delta);
      const event = { ...data, type };
      if (request.stream) await answer.writeEvent(event, response.deadlines);
      continue;
    }
    const seconds = statedSeconds(data) ?? estimate;
    answer.made = seconds;
    const text = json.textOf(data.text) || said;
    // The usage that the server states, or the seconds of the recording.
    const usage = isJsonObject(data.usage)
      ? data.usage
      : { type: "duration", seconds };
    if (request.stream) {
      const done = { ...data, type, text, usage };
      return await answer.writeEvent(done, response.deadlines);
    }
    const document = isEvents ? { text, usage } : { ...data, usage };
    return await answer.write(isJson ? JSON.stringify(document) : text);
  }
}

/** The text of a document, as events of OpenAI. Some servers send text even if JSON was requested, and others the reverse. */
async function* documentIn(
  response: ServerResponse,
  isJson: boolean,
): AsyncGenerator<ServerEvent> {
  const { contentType } = response.head;
  if (contentType === "text/html") {
    throw invalidAnswer("A web page instead of a transcription");
  }
  const text = await textIn(response, BYTES_MAX);
  const parsed = JSON_FORMAT.test(contentType)
    ? json.parseJson(text)
    : undefined;
  const data: json.JsonObject = isJsonObject(parsed) ? parsed : { text };
  throwIfError(data, response.server);
  if (isJson && typeof data.text !== "string") {
    throw invalidAnswer("A transcription without text");
  }
  yield { type: DELTA, data: { delta: json.textOf(data.text) } };
  yield { type: DONE, data };
}

/** The events of an answer, with those of other servers as OpenAI's. */
async function* eventsIn(
  response: ServerResponse,
): AsyncGenerator<ServerEvent> {
  let isForeign = false;
  for await (const event of eventsOf(response, { bytesMax: BYTES_MAX })) {
    const delta = foreignDelta(event);
    isForeign ||= delta !== null;
    yield delta === null ? event : { type: DELTA, data: { delta } };
    if (event.type === DONE) return;
  }
  // Such answers have no last event; a broken connection has been noticed already.
  if (!isForeign) throw truncatedAnswer("No last event");
  yield { type: DONE, data: {} };
}

/** The text in an event of vLLM, which has the form of a chat's chunk, or of speaches, a segment without a type. */
function foreignDelta({ type, data }: ServerEvent): string | null {
  const [choice] = Array.isArray(data.choices) ? data.choices : [];
  if (isJsonObject(choice) && isJsonObject(choice.delta)) {
    return json.textOf(choice.delta.content);
  }
  return type === "" && typeof data.text === "string" ? data.text : null;
}

/** Whole seconds, if the server states the length of the recording. */
function statedSeconds({ usage, duration }: json.JsonObject): number | null {
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
