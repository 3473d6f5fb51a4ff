/**
 * The endpoints that cost something, what a model server answers, and what is charged.
 */
import type { UsageUnit } from "@gateway/shared/keys/limiter_state";
import { callApi, postChat } from "../support/chat_request.ts";
import {
  choiceChunk,
  chunk,
  event,
  lastChunk,
  streamHead,
  typed,
  usageChunk,
} from "../support/model_servers/model_answers.ts";
import type { Step } from "../support/model_servers/scripted_server.ts";
import { formOf, recording } from "./media/recording_fixture.ts";

/** What the model server says of a chat, a hundred tokens at a time. */
const TEXTS = ["kite ", "hill ", "rain "].map((word) => word.repeat(80));
const SAID_TOKENS = 100;
const SOUND = new Uint8Array(1_024).fill(7);
const b64_json = SOUND.toBase64();
const SPOKEN = "Good morning.";
/** The whole seconds of a WAV file of almost that, 32,000 bytes for each. */
export const RECORDED_SECONDS = 3;
const RECORDING = recording(32_000 * RECORDED_SECONDS);
/** What the gateway takes "ping" for, where the model server does not count. */
const PROMPT_ESTIMATED = 5;
/** What the model server says at the end of a chat. */
const STATED = { prompt: 3, completion: 310 };

/** When the client leaves, by how much of its answer the model server has sent. */
export const MOMENTS = [
  { name: "before the head", parts: null },
  { name: "at the first bytes", parts: 1 },
  { name: "in the middle", parts: 2 },
  { name: "before the end", parts: 3 },
  { name: "after the end", parts: "all" },
] as const;
/** One of the moments. */
export type Moment = (typeof MOMENTS)[number];

/** What was charged: tokens of prompt and answer, or of the unit of the endpoint. */
export type Charge = Partial<
  Record<"promptTokens" | "completionTokens" | UsageUnit, number>
>;

/** An endpoint, how its model server answers, and what that costs. */
export interface Endpoint {
  readonly name: string;
  /** Null: tokens. */
  readonly unit: UsageUnit | null;
  send(origin: string, key: string, signal: AbortSignal): Promise<Response>;
  /** The answer: its head, three parts, and what ends it. */
  readonly head: Step;
  readonly parts: readonly [Step, Step, Step];
  readonly end: readonly Step[];
  /** Whether a client has this many parts; absent: it gets nothing before the end. */
  hasParts?(received: string, parts: number): boolean;
  charged(moment: Moment): Charge;
}

const namedEvent = (data: { type: string; [name: string]: unknown }) =>
  chunk(`event: ${data.type}\n${event(data)}`);
const hasEvents = (received: string, parts: number) =>
  received.split("\n\n").length > parts;
const json =
  (path: string, body: object): Endpoint["send"] => (origin, key, signal) =>
    callApi(`${origin}${path}`, key, { body, signal });
const form = (fields: Record<string, string>): Endpoint["send"] =>
(
  origin,
  key,
  signal,
) => {
  const file = new File([RECORDING], "a.wav", { type: "audio/wav" });
  const body = formOf(...Object.entries(fields), ["file", file]);
  return callApi(`${origin}/audio/transcriptions`, key, { body, signal });
};

/** A chat is charged what was said so far, and at its end what was stated. */
function chatCharged({ parts }: Moment): Charge {
  if (parts === "all") {
    const { prompt, completion } = STATED;
    return { promptTokens: prompt, completionTokens: completion };
  }
  const completionTokens = (parts ?? 0) * SAID_TOKENS;
  return { promptTokens: PROMPT_ESTIMATED, completionTokens };
}

function chatEndpoint({ stream }: { stream: boolean }): Endpoint {
  const [first = "", second = "", third = ""] = TEXTS;
  const says = (content: string) => chunk(event(choiceChunk({ content })));
  return {
    name: stream ? "chat, streamed" : "chat, whole",
    unit: null,
    send: (origin, key, signal) =>
      postChat(origin, key, { body: { stream, max_tokens: 400 }, signal }),
    head: streamHead(),
    parts: [says(first), says(second), says(third)],
    end: [
      chunk(event(choiceChunk({}, "stop"))),
      chunk(event(usageChunk(STATED.prompt, STATED.completion))),
      chunk(event("[DONE]")),
      lastChunk,
    ],
    ...stream && {
      hasParts: (received, parts) =>
        received.includes((TEXTS[parts - 1] ?? "").trim()),
    },
    charged: chatCharged,
  };
}

/** All endpoints that cost something, whole and streamed. */
export const ENDPOINTS: readonly Endpoint[] = [
  chatEndpoint({ stream: false }),
  chatEndpoint({ stream: true }),
  {
    name: "images, whole",
    unit: "images",
    send: json("/images/generations", {
      model: "simulated-image-1",
      prompt: "A kite",
      n: 2,
    }),
    head: typed("application/json"),
    parts: [
      chunk('{"created":1,"data":['),
      chunk(`{"b64_json":"${b64_json}"},`),
      chunk(`{"b64_json":"${b64_json}"}`),
    ],
    end: [chunk("]}"), lastChunk],
    charged: () => ({ images: 2 }),
  },
  {
    name: "images, streamed",
    unit: "images",
    send: json("/images/generations", {
      model: "simulated-image-1",
      prompt: "A kite",
      stream: true,
      partial_images: 2,
    }),
    head: streamHead(),
    parts: [
      namedEvent({ type: "image_generation.partial_image", b64_json }),
      namedEvent({ type: "image_generation.partial_image", b64_json }),
      namedEvent({ type: "image_generation.completed", b64_json }),
    ],
    end: [lastChunk],
    hasParts: hasEvents,
    charged: () => ({ images: 1 }),
  },
  {
    name: "speech",
    unit: "characters",
    send: json("/audio/speech", {
      model: "simulated-speech-1",
      voice: "alloy",
      input: SPOKEN,
    }),
    head: typed("audio/mpeg"),
    parts: [chunk(SOUND), chunk(SOUND), chunk(SOUND)],
    end: [lastChunk],
    hasParts: (received, parts) => received.length >= parts * SOUND.length,
    // Speech stops at once, so nothing was made before the first sound.
    charged: ({ parts }) => ({
      characters: parts === null ? 0 : SPOKEN.length,
    }),
  },
  {
    name: "transcriptions, whole",
    unit: "audioSeconds",
    send: form({ model: "simulated-transcription-1" }),
    head: typed("application/json"),
    parts: [chunk('{"text":'), chunk('"Good '), chunk('morning."')],
    end: [chunk("}"), lastChunk],
    charged: () => ({ audioSeconds: RECORDED_SECONDS }),
  },
  {
    name: "transcriptions, streamed",
    unit: "audioSeconds",
    send: form({ model: "simulated-transcription-1", stream: "true" }),
    head: streamHead(),
    parts: [
      namedEvent({ type: "transcript.text.delta", delta: "Good " }),
      namedEvent({ type: "transcript.text.delta", delta: "morning." }),
      namedEvent({ type: "transcript.text.done", text: "Good morning." }),
    ],
    end: [lastChunk],
    hasParts: hasEvents,
    charged: () => ({ audioSeconds: RECORDED_SECONDS }),
  },
  {
    name: "videos",
    unit: "videoSeconds",
    send: json("/videos", {
      model: "simulated-video-1",
      prompt: "A kite",
      seconds: "8",
    }),
    head: typed("application/json"),
    parts: [
      chunk('{"id":"theirs",'),
      chunk('"status":"queued",'),
      chunk('"progress":0'),
    ],
    end: [chunk("}"), lastChunk],
    charged: () => ({ videoSeconds: 8 }),
  },
];
