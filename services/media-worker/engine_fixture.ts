/** Engines for tests, requests to them, and what is passed on of their answers. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import {
  type MediaHead,
  MediaHeadReader,
} from "@gateway/shared/bus/media_head";
import type {
  BackendConfig,
  BackendDeadlines,
} from "@gateway/shared/models/catalog";
import { parseCatalog } from "@gateway/shared/models/catalog";
import type {
  ImageRequest,
  MediaRequest,
  SpeechRequest,
  TranscriptionRequest,
} from "@gateway/shared/openai/media";
import { monotonicNow } from "@gateway/shared/process/clock";
import { UpstreamError } from "@gateway/shared/upstream/errors";
import type { JobCall } from "@gateway/shared/worker/job";
import {
  type FakeModelServer,
  type Reply,
  startFakeModelServer,
  type Step,
} from "../../tests/support/fake_model_server.ts";
import { event } from "../../tests/support/model_answers.ts";
import { until } from "../../tests/support/wait_for.ts";
import { AnswerMemory } from "./answer_memory.ts";
import { Engine } from "./engine.ts";

export const API_KEY = "upstream-key-0123456789";
export const STALL: Step = { stall: true };
export const CLOSE: Step = { close: true };

/** To another server, which must not be called. */
export const REDIRECT: Step = head(
  "307 Temporary Redirect\r\nlocation: http://127.0.0.1:9/v1\r\ncontent-length: 0",
);

export interface RigOptions {
  deadlines?: Partial<BackendDeadlines>;
  /** Further members of the backend. */
  members?: Partial<BackendConfig>;
  memory?: AnswerMemory;
}

/** An engine that answers like this, and the fake server behind it. */
export function startEngine(
  reply: Reply,
  { deadlines, members, memory = new AnswerMemory(1e9) }: RigOptions = {},
) {
  const server = startFakeModelServer({ reply });
  const backend = { type: "openai", base_url: server.baseUrl, model: "theirs" };
  const models = [{ id: "ours", kind: "image", backends: [backend] }];
  const [config] = parseCatalog({ models }).get("ours")?.backends ?? [];
  assert.ok(config);
  const engine = new Engine({
    config: {
      ...config,
      ...members,
      deadlines: { ...config.deadlines, ...deadlines },
    },
    publicModel: "ours",
    apiKey: API_KEY,
    now: monotonicNow,
    memory,
    newBoundary: () => "boundary",
  });
  return {
    server,
    engine,
    memory,
    async [Symbol.asyncDispose]() {
      engine.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

export function speechWith(change: Partial<SpeechRequest> = {}): SpeechRequest {
  return {
    model: "ours",
    kind: "speech",
    stream: false,
    input: "Grüße 😀",
    voice: "alloy",
    response_format: "mp3",
    ...change,
  };
}
/** Of the text above, as its reader counts them. */
export const CHARACTERS = 7;

export function imageWith(change: Partial<ImageRequest> = {}): ImageRequest {
  return {
    model: "ours",
    kind: "image",
    task: "generate",
    stream: false,
    prompt: "A red fox",
    n: 1,
    ...change,
  };
}

export function transcriptionWith(
  change: Partial<TranscriptionRequest> = {},
): TranscriptionRequest {
  return {
    model: "ours",
    kind: "transcription",
    task: "transcribe",
    stream: false,
    response_format: "json",
    ...change,
  };
}

/** A call that collects what is passed on. */
export interface RecordedCall extends JobCall {
  bytes: number;
  made: number;
  /** The answer so far: its media type and its body. */
  seen(): { type: string; body: Buffer };
  head(): MediaHead | null;
}

export function recordCall(
  signal: AbortSignal = new AbortController().signal,
) {
  const parts: Uint8Array[] = [];
  const call: RecordedCall = {
    requestId: "req1",
    created: 1_767_622_290,
    signal,
    files: [],
    bytes: 0,
    made: 0,
    write(part, made) {
      const bytes = Buffer.from(part);
      parts.push(bytes);
      call.bytes += bytes.length;
      call.made = made;
      return undefined;
    },
    head() {
      const read = new MediaHeadReader().push(Buffer.concat(parts));
      return read === null || read === "invalid" ? null : read.head;
    },
    seen() {
      const read = new MediaHeadReader().push(Buffer.concat(parts));
      if (read === null || read === "invalid") {
        return { type: "", body: Buffer.alloc(0) };
      }
      return { type: read.head.content_type, body: Buffer.from(read.rest) };
    },
  };
  return call;
}

/** Runs a request, and says what the client got and how it ended. */
export async function run(
  engine: Engine,
  request: MediaRequest,
  call: RecordedCall = recordCall(),
) {
  let error: unknown = null;
  try {
    const made = await engine.run(request, call, {
      hasSent: false,
      onBegun: () => {},
    });
    assert.equal(made, call.made);
  } catch (thrown) {
    error = thrown;
  }
  const { type, body } = call.seen();
  return { error, type, body, text: body.toString(), made: call.made };
}

/** A head, and perhaps the start of a body. */
export function head(lines: string, body: string | Uint8Array = ""): Step {
  const bytes = Buffer.concat([
    Buffer.from(`HTTP/1.1 ${lines}\r\n\r\n`),
    Buffer.from(body),
  ]);
  return { send: bytes };
}

/** An event with its name, as OpenAI sends it. */
export function named(data: { type: string; [name: string]: unknown }): string {
  return `event: ${data.type}\n${event(data)}`;
}

/** What is parsed of an event stream: its data. */
export function eventsIn(text: string): unknown[] {
  return text.split("\n\n").slice(0, -1).map((block) => {
    const [name, data = "", ...rest] = block.split("\n");
    assert.deepEqual(rest, []);
    const parsed = JSON.parse(data.slice("data: ".length));
    assert.equal(name, `event: ${parsed.type}`);
    return parsed;
  });
}

/** The error of a fault, which holds no secret and, for the caller, no address. */
export async function assertFault(
  error: unknown,
  fault: string,
  { server, engine }: { server: FakeModelServer; engine: Engine },
): Promise<UpstreamError> {
  assert.ok(error instanceof UpstreamError, Deno.inspect(error));
  assert.equal(error.fault, fault, error.logText);
  const told = JSON.stringify(error.toBody());
  for (const secret of [API_KEY, "127.0.0.1", String(server.port), "theirs"]) {
    assert.ok(!told.includes(secret), told);
  }
  assert.ok(!Deno.inspect(error, { depth: 10 }).includes(API_KEY));
  engine.close();
  await until(() => server.openConnections === 0);
  return error;
}
