/** Speech: requests to model servers, and the audio that they send. */
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { SpeechRequest } from "@gateway/shared/openai/media";
import {
  invalidAnswer,
  truncatedAnswer,
} from "@gateway/shared/upstream/errors";
import * as json from "@gateway/shared/upstream/json";
import type { ServerResponse } from "@gateway/shared/upstream/model_server";
import {
  ask,
  type Attempt,
  eventsOf,
  piecesOf,
  textIn,
  throwIfError,
  usageOf,
} from "./attempt.ts";
import { EVENT_STREAM } from "./media_answer.ts";

/** The largest body that is read for its error when it should have been audio. */
const OTHER_BYTES_MAX = 64 * 1024;
/** The formats that vLLM-Omni can stream. */
const STREAMED = /^(pcm|wav)$/;

/**
 * Passes on the audio of a model server from its first byte: as it is or, with `stream`,
 * as events, whichever of the two the server sends.
 */
export function speak(attempt: Attempt<SpeechRequest>): Promise<void> {
  const { request, server: { config } } = attempt;
  // The format is always stated, because model servers have different defaults.
  const { input, voice, response_format, speed, instructions } = request;
  const mayStream = config.stream_format_field === "stream_format" &&
    (speed ?? 1) === 1 && STREAMED.test(response_format);
  const streamed = mayStream ? "audio" : undefined;
  const body = JSON.stringify({
    ...{ model: config.model, input, voice, response_format, speed },
    ...{ instructions, stream_format: request.stream ? "sse" : streamed },
  });
  const accept = `audio/*, ${EVENT_STREAM}, application/json`;
  return ask(
    attempt,
    { to: "/audio/speech", accept, body },
    (response) => passOn(response, attempt),
  );
}

async function passOn(
  response: ServerResponse,
  { request, answer }: Attempt<SpeechRequest>,
): Promise<void> {
  const { head: { contentType }, deadlines } = response;
  const pass = async (sound: Uint8Array) => {
    if (sound.length === 0) return;
    // The server has read the whole text, even if the rest of the audio never arrives.
    answer.made = [...request.input].length;
    if (!request.stream) return await answer.write(sound, deadlines);
    const event = { type: "speech.audio.delta", audio: sound.toBase64() };
    await answer.writeEvent(event, deadlines);
  };
  let usage: unknown;
  if (contentType === EVENT_STREAM) {
    usage = await readEvents(response, pass);
  } else if (/json$|^text\//.test(contentType)) {
    // The body may say what is wrong.
    const body = json.parseJson(await textIn(response, OTHER_BYTES_MAX));
    const about: json.JsonObject = Object(body);
    throwIfError(about, response.server);
    throw invalidAnswer(`${contentType} instead of audio`);
  } else {
    const pieces = piecesOf(response, MEDIA_LIMITS.speechBytesMax);
    for await (const sound of pieces) await pass(sound);
  }
  if (answer.made === 0) throw truncatedAnswer("No audio");
  if (!request.stream) return;
  const type = "speech.audio.done";
  const done = { type, usage: usageOf(usage, request.input) };
  await answer.writeEvent(done, deadlines);
}

/** Passes on the audio in events, and returns the usage that the last one states. */
async function readEvents(
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
  throw truncatedAnswer("No last event");
}

function fromBase64(text: string): Uint8Array {
  try {
    return Uint8Array.fromBase64(text);
  } catch {
    throw invalidAnswer("Not base64");
  }
}
