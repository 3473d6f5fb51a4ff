/** Requests under `/audio`: the sound of a text, and the text of a recording. */
import { Buffer } from "node:buffer";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type * as media from "@gateway/shared/openai/media";
import * as errors from "@gateway/shared/upstream/errors";
import * as json from "@gateway/shared/upstream/json";
import type { ServerResponse } from "@gateway/shared/upstream/model_server";
import {
  ask,
  EVENT_STREAM,
  eventsOf,
  type MediaAttempt,
  piecesOf,
  type ServerEvent,
  textIn,
  throwIfError,
  usageOf,
} from "./attempt.ts";
import { encodeForm } from "./form.ts";

/** The largest body that is read for its error when it should have been audio. */
const OTHER_BYTES_MAX = 64 * 1024;
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
  // The format is always stated, because model servers have different defaults.
  const { input, voice, response_format, speed, instructions } = request;
  const mayStream = config.stream_format_field === "stream_format" &&
    (speed ?? 1) === 1 && STREAMED.test(response_format);
  const streamed = mayStream ? "audio" : undefined;
  const body = JSON.stringify({
    model: config.model,
    input,
    voice,
    response_format,
    speed,
    instructions,
    stream_format: request.stream ? "sse" : streamed,
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
  const { contentType } = response.head;
  const pass = async (sound: Uint8Array) => {
    if (sound.length === 0) return;
    // The server has read the whole text, even if the rest of the audio never arrives.
    answer.made = [...request.input].length;
    if (!request.stream) return await answer.write(sound);
    const audio = sound.toBase64();
    await answer.writeEvent({ type: "speech.audio.delta", audio });
  };
  let usage: unknown;
  if (contentType === EVENT_STREAM) {
    usage = await readSoundEvents(response, pass);
  } else if (/json$|^text\//.test(contentType)) {
    // The body may say what is wrong.
    const text = await textIn(response, OTHER_BYTES_MAX);
    throwIfError(Object(json.parseJson(text)), response.server);
    throw errors.invalidAnswer(`${contentType} instead of audio`);
  } else {
    const pieces = piecesOf(response, MEDIA_LIMITS.speechBytesMax);
    for await (const sound of pieces) await pass(sound);
  }
  if (answer.made === 0) throw errors.truncatedAnswer("No audio");
  if (!request.stream) return;
  const stated = usageOf(usage, request.input);
  await answer.writeEvent({ type: "speech.audio.done", usage: stated });
}

/** Passes on the audio in events, and returns the usage that the last one states. */
async function readSoundEvents(
  response: ServerResponse,
  pass: (sound: Uint8Array) => Promise<void>,
): Promise<unknown> {
  const events = eventsOf(response, {
    bytesMax: MEDIA_LIMITS.speechBytesMax,
    eventCharsMax: MEDIA_LIMITS.speechEventCharsMax,
  });
  for await (const { type, data } of events) {
    if (type === "speech.audio.delta") {
      await pass(fromBase64(json.textOf(data.audio)));
    }
    // speaches calls it `token_usage`.
    if (type === "speech.audio.done") return data.usage ?? data.token_usage;
  }
  throw errors.truncatedAnswer("No last event");
}

function fromBase64(text: string): Uint8Array {
  try {
    return Uint8Array.fromBase64(text);
  } catch {
    throw errors.invalidAnswer("Not base64");
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
const JSON_FORMAT = /json$/;

/**
 * Passes on a text in the requested format or, with `stream`, as events, whichever of
 * the two the server sends.
 */
export function transcribe(
  attempt: MediaAttempt<media.TranscriptionRequest>,
): Promise<void> {
  const { request, server, answer } = attempt;
  const { files } = answer.call;
  const [file] = files;
  answer.started = secondsOf(file?.content ?? new Uint8Array());
  const { language, prompt, response_format, temperature, stream } = request;
  // Events need JSON: speaches fills them with the requested format.
  const isText = stream && !JSON_FORMAT.test(response_format);
  // The model comes first, so that model servers can route what follows.
  const form = encodeForm({
    model: server.config.model,
    language,
    prompt,
    response_format: isText ? "json" : response_format,
    temperature,
    stream: stream ? "true" : undefined,
    "timestamp_granularities[]": request.timestamp_granularities,
    "include[]": request.include,
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
  const estimate = answer.started;
  const isJson = JSON_FORMAT.test(request.response_format);
  const isEvents = response.head.contentType === EVENT_STREAM;
  const parts = isEvents
    ? readTextEvents(response)
    : readDocument(response, isJson);
  let heard = "";
  for await (const { type, data } of parts) {
    answer.made = estimate;
    if (type !== DONE) {
      if (type === DELTA) heard += json.textOf(data.delta);
      if (request.stream) await answer.writeEvent({ ...data, type });
      continue;
    }
    const seconds = statedSeconds(data) ?? estimate;
    answer.made = seconds;
    const text = json.textOf(data.text) || heard;
    // The usage that the server states, or the seconds of the recording.
    const usage = json.isJsonObject(data.usage)
      ? data.usage
      : { type: "duration", seconds };
    if (request.stream) {
      return await answer.writeEvent({ ...data, type, text, usage });
    }
    const document = isEvents ? { text, usage } : { ...data, usage };
    return await answer.write(isJson ? JSON.stringify(document) : text);
  }
}

/**
 * The text of a document, as events of OpenAI. Some servers send text even if JSON was
 * requested, and others the reverse.
 */
async function* readDocument(
  response: ServerResponse,
  isJson: boolean,
): AsyncGenerator<ServerEvent> {
  const { contentType } = response.head;
  if (contentType === "text/html") {
    throw errors.invalidAnswer("A web page instead of a transcription");
  }
  const text = await textIn(response, BYTES_MAX);
  const parsed = JSON_FORMAT.test(contentType) && json.parseJson(text);
  const data: json.JsonObject = json.isJsonObject(parsed) ? parsed : { text };
  throwIfError(data, response.server);
  if (isJson && typeof data.text !== "string") {
    throw errors.invalidAnswer("A transcription without text");
  }
  yield { type: DELTA, data: { delta: json.textOf(data.text) } };
  yield { type: DONE, data };
}

/** The events of an answer, with those of other servers as OpenAI's. */
async function* readTextEvents(
  response: ServerResponse,
): AsyncGenerator<ServerEvent> {
  let isForeign = false;
  const events = eventsOf(response, { bytesMax: BYTES_MAX });
  for await (const event of events) {
    const delta = foreignDelta(event);
    isForeign ||= delta !== null;
    yield delta === null ? event : { type: DELTA, data: { delta } };
    if (event.type === DONE) return;
  }
  // Such answers have no last event; a broken connection has been noticed already.
  if (!isForeign) throw errors.truncatedAnswer("No last event");
  yield { type: DONE, data: {} };
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

/** Whole seconds, if the server states the length of the recording. */
function statedSeconds({ usage, duration }: json.JsonObject): number | null {
  const stated = json.isJsonObject(usage) && usage.type === "duration"
    ? usage.seconds
    : duration;
  const seconds = Number(stated ?? NaN);
  const isLength = seconds >= 0 && seconds < MEDIA_LIMITS.secondsMax;
  return isLength ? Math.ceil(seconds) : null;
}

/**
 * In hex, of raw samples: players of a WAV file that contains MP3 or the like ignore
 * the numbers in its head.
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
