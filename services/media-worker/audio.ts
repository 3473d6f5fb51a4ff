/** Requests under `/audio`: the sound of a text, and the text of a recording. */
import { Buffer } from "node:buffer";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type * as media from "@gateway/shared/openai/media";
import * as errors from "@gateway/shared/upstream/http/errors";
import * as json from "@gateway/shared/upstream/json";
import type { ServerResponse } from "@gateway/shared/upstream/model_server";
import type { AttemptProgress } from "@gateway/shared/upstream/attempt";
import {
  type AnswerBody,
  EVENT_STREAM,
  eventsOf,
  openBody,
  piecesOf,
  refuseBody,
  type ServerEvent,
  textIn,
  throwIfError,
} from "./answer_body.ts";
import {
  ask,
  JSON_FORMAT,
  type MediaAttempt,
  tokenUsage,
  usageOf,
} from "./attempt.ts";
import { encodeForm } from "./files/form.ts";
import { usageHeaders, usageInHeaders } from "./usage_headers.ts";

/** The formats that vLLM-Omni can stream. */
const STREAMED = /^(pcm|wav)$/;

/**
 * Passes on audio as it arrives or, with `stream`, as events, whichever of the two the
 * server sends.
 */
export function speak(
  attempt: MediaAttempt<media.SpeechRequest>,
): Promise<void> {
  const { request, server: { config } } = attempt;
  const { input, format, fields, stream } = request;
  const mayStream = config.stream_format_field === "stream_format" &&
    Number(fields.speed ?? 1) === 1 && STREAMED.test(format);
  const body = JSON.stringify({
    model: config.model,
    input,
    // Always stated, because model servers have different defaults.
    response_format: format,
    ...mayStream && { stream_format: "audio" },
    ...fields,
    ...stream && { stream_format: "sse" },
  });
  const accept = `audio/*, ${EVENT_STREAM}, application/json`;
  const question = { to: "/audio/speech", accept, body };
  return ask(
    attempt,
    question,
    (response) => passOnSound(response, attempt),
  );
}

/** Reads the server's audio, whichever form it has, and writes what was requested. */
async function passOnSound(
  response: ServerResponse,
  { request, answer }: MediaAttempt<media.SpeechRequest>,
): Promise<void> {
  const body = await openBody(response, answer);
  const pass = async (sound: Uint8Array, event: json.JsonObject = {}) => {
    if (sound.length === 0) return;
    // The server has read the whole text, even if the rest of the audio never arrives.
    answer.noteMade([...request.input].length);
    if (!request.stream) return await answer.write(sound);
    const audio = sound.toBase64();
    await answer.writeEvent({ ...event, type: DELTA_OF_SOUND, audio });
  };
  const headers = usageHeaders(response);
  let lastEvent: json.JsonObject = {};
  const isEvents = body.form === "events";
  if (!isEvents && body.form !== "file") return await refuseBody(body, "sound");
  if (isEvents !== request.stream) {
    answer.progress.onOddity("form_converted", 1);
  }
  if (isEvents) {
    lastEvent = await readSoundEvents(body, {
      progress: answer.progress,
      pass,
      other: async (event) => {
        if (request.stream && answer.unitsMade > 0) {
          await answer.writeEvent(event);
        } else answer.progress.onOddity("event_skipped", 1);
      },
    });
  } else {
    answer.setTypeIfUnknown(body.type);
    if (!request.stream) answer.changeHead({ headers });
    const pieces = piecesOf(body, MEDIA_LIMITS.speechBytesMax);
    for await (const sound of pieces) await pass(sound);
  }
  if (answer.unitsMade === 0) throw errors.truncatedAnswer("No audio");
  if (!request.stream) return;
  // speaches calls it `token_usage`.
  const { token_usage: other, ...rest } = lastEvent;
  const usages = [lastEvent.usage, other, usageInHeaders(headers)];
  const usage = usageOf(usages, request.input);
  await answer.writeEvent({ ...rest, type: DONE_OF_SOUND, usage });
}

const DELTA_OF_SOUND = "speech.audio.delta";
const DONE_OF_SOUND = "speech.audio.done";

/** Where the events of an answer go. */
interface SoundSink {
  progress: Pick<AttemptProgress, "onOddity">;
  /** Takes the audio of an event. */
  pass(sound: Uint8Array, event: json.JsonObject): Promise<void>;
  /** Takes an event of a type that OpenAI does not have. */
  other(event: json.JsonObject & { type: string }): Promise<void>;
}

/** Passes on events up to the last one, which it returns. */
async function readSoundEvents(
  body: AnswerBody,
  { progress, pass, other }: SoundSink,
): Promise<json.JsonObject> {
  const events = eventsOf(body, {
    progress,
    bytesMax: MEDIA_LIMITS.speechBytesMax,
    eventCharsMax: MEDIA_LIMITS.speechEventCharsMax,
  });
  for await (const { type, data } of events) {
    if (type === DONE_OF_SOUND) return data;
    if (type === DELTA_OF_SOUND) {
      await pass(fromBase64(json.textOf(data.audio)), data);
    } else if (type !== "") await other({ ...data, type });
  }
  throw errors.truncatedAnswer("No last event");
}

function fromBase64(text: string): Uint8Array {
  try {
    return Uint8Array.fromBase64(text);
  } catch {
    throw errors.unsupportedAnswer("Sound that is not base64");
  }
}

/**
 * The usual rate of speech in MP3 files, to estimate the length of a recording if it is
 * not stated.
 */
const BYTES_PER_SECOND = 8_000;
const BYTES_MAX = MEDIA_LIMITS.transcriptBytesMax;
const DELTA = "transcript.text.delta";
const DONE = "transcript.text.done";

/**
 * Passes on a text in the requested format or, with `stream`, as events, whichever of
 * the two the server sends.
 */
export function transcribe(
  attempt: MediaAttempt<media.TranscriptionRequest>,
): Promise<void> {
  const { request, server, answer } = attempt;
  const { files } = answer.context;
  const [file] = files;
  answer.noteStarted(secondsOf(file?.content ?? new Uint8Array()));
  const { format, fields, stream } = request;
  // Events need JSON: speaches fills them with the requested format.
  const isText = stream && !JSON_FORMAT.test(format);
  const form = encodeForm({
    model: server.config.model,
    response_format: isText ? "json" : format,
    ...fields,
    stream: stream ? "true" : undefined,
  }, files);
  const to = request.task === "translate" ? "translations" : "transcriptions";
  return ask(attempt, {
    to: `/audio/${to}`,
    ...form,
    accept: `application/json, ${EVENT_STREAM}, text/*`,
    // The text of a recording may not start before the whole recording was processed.
    mustBeginSoon: stream,
  }, (response) => passOnText(response, attempt));
}

/** Reads the server's text, whichever form it has, and writes what was requested. */
async function passOnText(
  response: ServerResponse,
  { request, answer }: MediaAttempt<media.TranscriptionRequest>,
): Promise<void> {
  const estimate = answer.unitsStarted;
  const isJson = JSON_FORMAT.test(request.format);
  const { progress } = answer;
  const trusted = isJson || request.stream ? null : "text";
  const body = await openBody(response, { progress, trusted });
  const isEvents = body.form === "events";
  const isDocument = (body.form === "json") === isJson;
  if (isEvents !== request.stream || !(isEvents || isDocument)) {
    progress.onOddity("form_converted", 1);
  }
  answer.setTypeIfUnknown(isEvents ? "text/plain" : body.type);
  const parts = isEvents
    ? readTextEvents(body, progress)
    : readDocument(body, isJson);
  let heard = "";
  for await (const { type, data } of parts) {
    answer.noteMade(estimate);
    if (type !== DONE) {
      if (type === DELTA) heard += json.textOf(data.delta);
      if (request.stream) await answer.writeEvent({ ...data, type });
      continue;
    }
    const seconds = statedSeconds(data) ?? estimate;
    answer.noteMade(seconds);
    const text = json.textOf(data.text) || heard;
    // The usage that the server states, or the seconds of the recording.
    const usage = json.isJsonObject(data.usage)
      ? data.usage
      : { type: "duration", seconds };
    if (request.stream) {
      return await answer.writeEvent({ ...data, type, text, usage });
    }
    const document: json.JsonObject = { ...data, text, usage };
    if (isEvents) delete document.type;
    return await answer.write(isJson ? JSON.stringify(document) : text);
  }
}

/**
 * The text of a document, as events of OpenAI. Some servers send text even if JSON was
 * requested, and others the reverse.
 */
async function* readDocument(
  body: AnswerBody,
  isJson: boolean,
): AsyncGenerator<ServerEvent> {
  if (body.form === "page") await refuseBody(body, "a transcription");
  const text = await textIn(body, BYTES_MAX);
  const data = documentIn(text, { body, isJson });
  yield { type: DELTA, data: { delta: json.textOf(data.text) } };
  yield { type: DONE, data };
}

/** The members of a document. Throws the error that it reports. */
function documentIn(
  text: string,
  { body: { form, response: { server } }, isJson }: {
    body: AnswerBody;
    isJson: boolean;
  },
): json.JsonObject {
  const parsed = json.parseJson(text);
  if (form !== "json") {
    // No recording says this: some servers report an error as the text.
    if (isErrorObject(parsed)) throwIfError(parsed, server);
    return { text };
  }
  // Some servers make JSON of every answer, of a text, too.
  if (typeof parsed === "string") return { text: parsed };
  if (json.isJsonObject(parsed)) {
    throwIfError(parsed, server);
    if (typeof parsed.text === "string" || hasSegments(parsed)) return parsed;
  }
  const isOther = json.isJsonObject(parsed) || text.trimStart().startsWith("{");
  if (isJson && isOther) {
    throw errors.unsupportedAnswer("A transcription without text");
  }
  return { text };
}

/** Whether JSON is an error in OpenAI's form. */
function isErrorObject(parsed: unknown): parsed is json.JsonObject {
  return json.isJsonObject(parsed) && json.isJsonObject(parsed.error) &&
    typeof parsed.error.message === "string";
}

/** The events of an answer, with those of other servers as OpenAI's. */
async function* readTextEvents(
  body: AnswerBody,
  progress: AttemptProgress,
): AsyncGenerator<ServerEvent> {
  let isForeign = false;
  let usage: json.JsonObject | undefined;
  const events = eventsOf(body, { progress, bytesMax: BYTES_MAX });
  for await (const event of events) {
    const delta = foreignDelta(event);
    isForeign ||= delta !== null;
    if (delta !== null) yield { type: DELTA, data: { delta } };
    else if (event.type !== "") yield event;
    else if (!json.isJsonObject(event.data.usage)) {
      progress.onOddity("event_skipped", 1);
    }
    if (json.isJsonObject(event.data.usage)) usage = event.data.usage;
    if (event.type === DONE) return;
  }
  // Such answers have no last event; a broken connection has been noticed already.
  if (!isForeign) throw errors.truncatedAnswer("No last event");
  progress.onOddity("form_converted", 1);
  const members = usage && { usage: { type: "tokens", ...tokenUsage(usage) } };
  yield { type: DONE, data: { ...members } };
}

/**
 * The text in an event of vLLM, which has the form of a chat's chunk, or of speaches, a
 * segment without a type.
 */
function foreignDelta({ type, data }: ServerEvent): string | null {
  const [choice] = Array.isArray(data.choices) ? data.choices : [];
  if (json.isJsonObject(choice) && json.isJsonObject(choice.delta)) {
    return json.textOf(choice.delta.content);
  }
  return type === "" && typeof data.text === "string" ? data.text : null;
}

function hasSegments({ segments }: json.JsonObject): boolean {
  return Array.isArray(segments) && segments.length > 0;
}

/**
 * Whole seconds, if the server states the length of the recording: in the usage, beside
 * the text, or as the end of the last segment. The largest counts.
 */
function statedSeconds(data: json.JsonObject): number | null {
  const usage = json.isJsonObject(data.usage) ? data.usage : {};
  const last = Array.isArray(data.segments) ? data.segments.at(-1) : null;
  const lengths = [
    usage.seconds,
    // Mistral's name for it.
    usage.prompt_audio_seconds,
    data.duration,
    json.isJsonObject(last) ? last.end : undefined,
  ].map((seconds) => Number(seconds ?? NaN))
    .filter((seconds) => seconds >= 0 && seconds < MEDIA_LIMITS.secondsMax);
  return lengths.length === 0 ? null : Math.ceil(Math.max(...lengths));
}

/**
 * The head, in hex, of a WAV file of raw samples: players of one that contains MP3 or
 * the like ignore the numbers in its head.
 */
const WAV = /^52494646.{8}57415645666d7420.{8}(feff.{44})?0[1367]00/;
/**
 * Whole seconds of a recording: read from the head of a WAV file, else estimated by its
 * size.
 */
function secondsOf(file: Uint8Array): number {
  const head = Buffer.from(file.buffer, file.byteOffset, file.length);
  const isWav = file.length >= 44 && WAV.test(head.toString("hex", 0, 46));
  // Channels, samples, bits: players ignore the rate of bytes, which may claim
  // anything.
  const bits = isWav
    ? head.readUInt16LE(22) * head.readUInt32LE(24) * head.readUInt16LE(34)
    : 0;
  return Math.max(1, Math.ceil(file.length / (bits / 8 || BYTES_PER_SECOND)));
}
