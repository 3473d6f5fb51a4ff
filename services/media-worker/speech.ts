/** Speech: requests to model servers, and the audio that they send. */
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { SpeechRequest } from "@gateway/shared/openai/media";
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
  eventsOf,
  fromBase64,
  isError,
  type ReadOptions,
  usageOf,
} from "./events.ts";
import { EVENT_STREAM, type MediaAnswer } from "./media_answer.ts";

/** The largest body that is read for its error when it should have been audio. */
const OTHER_BYTES_MAX = 64 * 1024;
/** The formats that vLLM-Omni can stream. */
const STREAMED = /^(pcm|wav)$/;

/** The body of a request. The format is always stated, because model servers have different defaults. */
export function encodeSpeechBody(
  request: SpeechRequest,
  { model, stream_format_field: field }: Pick<
    BackendConfig,
    "model" | "stream_format_field"
  >,
): string {
  const { input, voice, response_format, speed, instructions } = request;
  const mayStream = field === "stream_format" && (speed ?? 1) === 1 &&
    STREAMED.test(response_format);
  const stream_format = request.stream
    ? "sse"
    : mayStream
    ? "audio"
    : undefined;
  return JSON.stringify({
    ...{ model, input, voice, response_format, speed, instructions },
    stream_format,
  });
}

/**
 * Passes on the audio of a model server from its first byte: as it is or, with `stream`,
 * as events, whichever of the two the server sends. Rejects with an `UpstreamError`.
 */
export async function passOnSpeech(
  response: ServerResponse,
  request: SpeechRequest,
  answer: MediaAnswer,
  options: ReadOptions,
): Promise<void> {
  const { head: { contentType }, connection, deadlines } = response;
  const { betweenMs } = options;
  const pass = (sound: Uint8Array): Promise<void> => {
    if (sound.length === 0) return Promise.resolve();
    // The server has read the whole text, even if the rest of the audio never arrives.
    answer.made = [...request.input].length;
    if (!request.stream) return answer.write(sound, deadlines);
    const event = { type: "speech.audio.delta", audio: sound.toBase64() };
    return answer.writeEvent(event, deadlines);
  };
  let usage: unknown;
  connection.bytesLeft = MEDIA_LIMITS.speechBytesMax;
  if (contentType === EVENT_STREAM) {
    usage = await readSoundEvents(response, pass, options);
  } else {
    if (/json$|^text\//.test(contentType)) {
      throw await notSound(response, options);
    }
    for (;;) {
      const sound = await connection.read();
      if (sound === null) break;
      await pass(sound);
      deadlines.arm("betweenTokens", betweenMs);
    }
  }
  if (answer.made === 0) throw truncatedAnswer("No audio");
  if (!request.stream) return;
  const done = {
    type: "speech.audio.done",
    usage: usageOf(usage, request.input),
  };
  await answer.writeEvent(done, deadlines);
}

/** Passes on the audio in events, and returns the usage that the last one states. */
async function readSoundEvents(
  response: ServerResponse,
  pass: (sound: Uint8Array) => Promise<void>,
  options: ReadOptions,
): Promise<unknown> {
  const eventCharsMax = MEDIA_LIMITS.speechEventCharsMax;
  for await (const event of eventsOf(response, { ...options, eventCharsMax })) {
    const { type, data } = event;
    if (type === "speech.audio.delta") {
      await pass(fromBase64(textOf(data.audio)));
    }
    // speaches calls it `token_usage`.
    if (type === "speech.audio.done") return data.usage ?? data.token_usage;
  }
  throw truncatedAnswer("No last event");
}

/** The error for a body with status 200 that is not audio; the body may say what is wrong. */
async function notSound(
  { connection, head: { contentType } }: ServerResponse,
  { betweenMs, redact }: ReadOptions,
) {
  connection.bytesLeft = OTHER_BYTES_MAX;
  const body = parseJson(await connection.readText(betweenMs));
  const error: JsonObject = Object(body);
  return isError(error)
    ? frameError(error, redact)
    : invalidAnswer(`${contentType} instead of audio`);
}
