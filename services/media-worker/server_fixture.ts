/**
 * Model servers for tests, requests to them, and what is passed on of their answers.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import {
  type MediaHead,
  MediaHeadReader,
} from "@gateway/shared/bus/media_head";
import { ApiError } from "@gateway/shared/openai/error";
import type * as media from "@gateway/shared/openai/media";
import { monotonicNow } from "@gateway/shared/process/clock";
import { UpstreamError } from "@gateway/shared/upstream/http/errors";
import { ModelServer } from "@gateway/shared/upstream/model_server";
import type { AttemptProgress } from "@gateway/shared/upstream/attempt";
import { WorkerMemory } from "@gateway/shared/worker/jobs/memory";
import {
  backendAt,
  type BackendChange,
  type Reply,
  type ScriptedServer,
  startScriptedServer,
  type Step,
  type WholeRequest,
} from "../../tests/support/model_servers/scripted_server.ts";
import {
  chunk,
  event,
  lastChunk,
  streamHead,
} from "../../tests/support/model_servers/model_answers.ts";
import {
  noProgress,
  recordContext,
  type RecordedContext,
} from "../../tests/support/model_servers/recorded_context.ts";
import { until } from "../../tests/support/wait_for.ts";
import { AttemptAnswer } from "./attempt.ts";
import { passOn } from "./media.ts";

/** The key that the worker sends, and that nobody may see. */
export const API_KEY = "upstream-key-0123456789";
/** A request for events. */
export const SSE = { stream: true } as const;

const ABOUT = { model: "ours", stream: false } as const;
/** A request for the sound of a short text. */
export const SPEECH: media.SpeechRequest = {
  ...ABOUT,
  kind: "speech",
  format: "mp3",
  input: "Grüße 😀",
  fields: { voice: "alloy" },
};
/** The characters of that text, as its reader counts them. */
export const CHARACTERS = 7;
/** A request for one image. */
export const IMAGE: media.ImageRequest = {
  ...ABOUT,
  kind: "image",
  task: "generate",
  prompt: "A red fox",
  count: 1,
  format: "b64_json",
  fields: {},
};
/** The request for events, with this many images before the final one. */
export const partly = (partial_images: number): media.ImageRequest => (
  { ...IMAGE, ...SSE, fields: { partial_images } }
);
/** A request for the text of a recording. */
export const TRANSCRIPTION: media.TranscriptionRequest = {
  ...ABOUT,
  kind: "transcription",
  task: "transcribe",
  format: "json",
  fields: {},
};

/** How a request ended, and what of its answer was passed on. */
export interface Passed {
  /** Null if there was none. */
  error: unknown;
  head: MediaHead | null;
  /** The type in the head. */
  type: string;
  body: Buffer;
  /** The body as a text. */
  text: string;
  /** What the call counts as made. */
  units: number;
}

/** A model server, and the worker's end of it. */
export interface Rig extends AsyncDisposable {
  readonly peer: ScriptedServer;
  readonly server: ModelServer;
  readonly memory: WorkerMemory;
  /** Runs a request, and says what the client got and how it ended. */
  run(
    request: media.MediaRequest,
    context?: RecordedContext,
    progress?: AttemptProgress,
  ): Promise<Passed>;
}

/** A model server that answers like this, and the worker's end of it. */
export function startServer(
  reply: Reply,
  change: BackendChange = {},
  memory: WorkerMemory = new WorkerMemory(1e9),
): Rig {
  const peer = startScriptedServer({ reply });
  const server = new ModelServer({
    config: backendAt(peer.baseUrl, change),
    publicModel: "ours",
    apiKey: API_KEY,
    now: monotonicNow,
  });
  return {
    peer,
    server,
    memory,
    async run(request, context = recordContext(), progress = noProgress()) {
      const answer = new AttemptAnswer(context, progress, request);
      const error: unknown = await passOn({
        request,
        server,
        answer,
        memory: memory.openJob(),
      })
        .then(() => null, (thrown) => thrown);
      if (error === null) assert.equal(answer.unitsMade, context.tokens);
      const { head, body } = read(context);
      const type = head?.content_type ?? "";
      const text = body.toString();
      return { error, head, type, body, text, units: context.tokens };
    },
    async [Symbol.asyncDispose]() {
      server.close();
      await peer[Symbol.asyncDispose]();
    },
  };
}

/** The head and the body of what was passed on; a null head if there is none. */
export function read(context: RecordedContext) {
  const read = new MediaHeadReader().push(context.answer());
  return read === null || read === "invalid"
    ? { head: null, body: Buffer.alloc(0) }
    : { head: read.head, body: Buffer.from(read.rest) };
}

/** The code of an error of ours, else the error itself. */
export const codeOf = (error: unknown) =>
  error instanceof ApiError ? error.code : error;

/** A reply of events, each a text such as {@link namedEvent} makes. */
export const sse = (...events: string[]): Step[] => [
  streamHead(),
  ...events.map(chunk),
  lastChunk,
];

/** An event with its name, as OpenAI sends it. */
export function namedEvent(
  data: { type: string; [name: string]: unknown },
): string {
  return `event: ${data.type}\n${event(data)}`;
}

/** The data of events that were passed on; asserts that each has its name. */
export function eventsIn(text: string): { [name: string]: unknown }[] {
  return text.split("\n\n").slice(0, -1).map((block) => {
    const [name, data = "", ...rest] = block.split("\n");
    assert.deepEqual(rest, []);
    const parsed = JSON.parse(data.slice("data: ".length));
    assert.equal(name, `event: ${parsed.type}`);
    return parsed;
  });
}

/**
 * The fields and files of a form that was sent: names, with texts or media types and
 * names of files.
 */
export async function formOf({ body, headers }: WholeRequest) {
  const type = headers.get("content-type") ?? "";
  const response = new Response(body, { headers: { "content-type": type } });
  return [...await response.formData()].map(([name, value]) =>
    typeof value === "string" ? [name, value] : [name, value.type, value.name]
  );
}

/**
 * Asserts the fault of an error, which reveals no secret and, to the caller, no
 * address.
 */
export async function assertFault(
  error: unknown,
  fault: string,
  { peer, server }: Rig,
): Promise<UpstreamError> {
  assert.ok(error instanceof UpstreamError, Deno.inspect(error));
  assert.equal(error.fault, fault, error.logText);
  const text = JSON.stringify(error.toBody());
  for (const secret of [API_KEY, "127.0.0.1", String(peer.port), "theirs"]) {
    assert.ok(!text.includes(secret), text);
  }
  assert.ok(!Deno.inspect(error, { depth: 10 }).includes(API_KEY));
  server.close();
  await until(() => peer.openConnections === 0);
  return error;
}
