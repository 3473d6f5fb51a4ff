/** Transcriptions: forms for model servers, and the texts that they send. */
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { UploadedFile } from "@gateway/shared/bus/job";
import type { TranscriptionRequest } from "@gateway/shared/openai/media";
import { isJsonObject } from "@gateway/shared/process/error_text";
import { encodeForm } from "@gateway/shared/upstream/form_data";
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
import { frameError } from "@gateway/shared/upstream/refusal";
import {
  type EngineEvent,
  eventsOf,
  isError,
  type ReadOptions,
} from "./events.ts";
import { EVENT_STREAM, type MediaAnswer } from "./media_answer.ts";

/** The usual rate of speech in MP3 files, to estimate the length of a recording that nobody states. */
const BYTES_PER_SECOND = 8_000;
const DELTA = "transcript.text.delta";
const DONE = "transcript.text.done";

/** The form. The model comes first, so that model servers can route what follows. */
export function encodeTranscriptionForm(
  request: TranscriptionRequest,
  model: string,
  files: readonly UploadedFile[],
  boundary: string,
) {
  const { language, prompt, response_format, temperature, stream } = request;
  const { timestamp_granularities = [], include = [] } = request;
  const fields: [string, string][] = [["model", model]];
  if (language !== undefined) fields.push(["language", language]);
  if (prompt !== undefined) fields.push(["prompt", prompt]);
  // Events need JSON: speaches fills them with the requested format.
  const isText = stream && !/json$/.test(response_format);
  fields.push(["response_format", isText ? "json" : response_format]);
  if (temperature !== undefined) {
    fields.push(["temperature", String(temperature)]);
  }
  if (stream) fields.push(["stream", "true"]);
  for (const each of timestamp_granularities) {
    fields.push(["timestamp_granularities[]", each]);
  }
  for (const each of include) fields.push(["include[]", each]);
  return encodeForm(fields, files, boundary);
}

export interface TranscriptionCall {
  request: TranscriptionRequest;
  answer: MediaAnswer;
  read: ReadOptions;
}

/**
 * Passes on the text of a model server: in the requested format or, with `stream`, as
 * events, whichever of the two the server sends. Rejects with an `UpstreamError`.
 */
export async function passOnTranscription(
  response: ServerResponse,
  { request, answer, read }: TranscriptionCall,
): Promise<void> {
  const { connection, head: { contentType } } = response;
  const [file] = answer.call.files;
  const estimate = secondsOf(file?.content ?? new Uint8Array());
  connection.bytesLeft = MEDIA_LIMITS.transcriptBytesMax;
  if (contentType === EVENT_STREAM) {
    return await passOnEvents(response, { request, answer, read }, estimate);
  }
  if (contentType === "text/html") {
    throw invalidAnswer("A web page instead of a transcription");
  }
  const text = await connection.readText(read.betweenMs);
  const json = /json$/.test(contentType) ? parseJson(text) : undefined;
  if (isJsonObject(json) && isError(json)) throw frameError(json, read.redact);
  const isJson = /json$/.test(request.response_format);
  // Some servers send text even if JSON was requested, and others the reverse.
  const body: JsonObject = isJsonObject(json) ? json : { text };
  if (isJson && typeof body.text !== "string") {
    throw invalidAnswer("A transcription without text");
  }
  answer.made = statedSeconds(body) ?? estimate;
  if (request.stream) {
    const said = textOf(body.text);
    await answer.writeEvent({ type: DELTA, delta: said });
    return await answer.writeEvent(doneEvent(said, body, answer.made));
  }
  if (!isJson) {
    const isText = request.response_format === "text" && isJsonObject(json);
    return await answer.write(isText ? textOf(body.text) : text);
  }
  const usage = usageOf(body, answer.made);
  await answer.write(JSON.stringify({ ...body, usage }));
}

async function passOnEvents(
  response: ServerResponse,
  { request, answer, read }: TranscriptionCall,
  estimate: number,
): Promise<void> {
  const eventCharsMax = MEDIA_LIMITS.transcriptBytesMax;
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
    return answer.write(
      /json$/.test(request.response_format)
        ? JSON.stringify({ text, usage })
        : text,
    );
  };
  for await (const each of eventsOf(response, { ...read, eventCharsMax })) {
    if (each.type === DONE) return await finish(each.data);
    const foreign = foreignDelta(each);
    isForeign ||= foreign !== null;
    const delta = foreign ?? (each.type === DELTA ? each.data.delta : "");
    said += textOf(delta);
    if (request.stream) {
      const { data, type } = each;
      const event = foreign === null
        ? { ...data, type }
        : { type: DELTA, delta };
      await answer.writeEvent(event, response.deadlines);
    }
  }
  // Such answers have no last event; a broken connection has been noticed already.
  if (!isForeign) throw truncatedAnswer("No last event");
  await finish({});
}

/** The text in an event of vLLM, which has the form of a chat's chunk, or of speaches, a segment without a type. */
function foreignDelta({ type, data }: EngineEvent): string | null {
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
  const view = new DataView(file.buffer, file.byteOffset, file.length);
  const isWav = file.length >= 44 && view.getUint32(0) === 0x52494646 &&
    view.getUint32(8) === 0x57415645 && view.getUint32(12) === 0x666d7420;
  // Channels, samples, bits: players ignore the rate of bytes, which may claim anything.
  const bits = isWav
    ? view.getUint16(22, true) * view.getUint32(24, true) *
      view.getUint16(34, true)
    : 0;
  const rate = bits / 8 || BYTES_PER_SECOND;
  return Math.max(1, Math.ceil(file.length / rate));
}
