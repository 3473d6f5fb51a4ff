/**
 * A model server whose answers last as long as the prompt says, and which counts
 * what runs at the same time: what a limit of concurrency is there for.
 */
import {
  type FakeModelServer,
  type FakeRequest,
  startFakeModelServer,
  type Step,
} from "./fake_model_server.ts";
import {
  choiceChunk,
  chunk,
  event,
  jsonResponse,
  lastChunk,
  streamHead,
  usageChunk,
} from "./model_answers.ts";

export interface PacedModelServer extends AsyncDisposable {
  readonly baseUrl: string;
  /** Calls of a kind that run now. */
  running(kind: string): number;
  /** Called with each call that begins, after it is counted. */
  onBegin: (kind: string) => void;
}

/** Between two tokens of a stream. */
const TOKEN_MS = 50;
const PROMPT = /^([a-z]+) (\d+)$/;

/** The text of a message: `slot 200` is a call of the kind `slot` that lasts 200 ms. */
export function pacedPrompt(kind: string, ms: number): string {
  return `${kind} ${ms}`;
}

/** Starts it on a free port. */
export function startPacedModelServer(): PacedModelServer {
  const running = new Map<string, number>();
  const count = (kind: string, change: number) => {
    running.set(kind, (running.get(kind) ?? 0) + change);
  };
  const server: FakeModelServer = startFakeModelServer({
    *reply(request) {
      const { kind, ms, isStream } = wishOf(request);
      count(kind, 1);
      paced.onBegin(kind);
      try {
        yield* isStream ? streamFor(ms) : answerAfter(ms);
      } finally {
        count(kind, -1);
      }
    },
  });
  const paced: PacedModelServer = {
    baseUrl: server.baseUrl,
    running: (kind) => running.get(kind) ?? 0,
    onBegin: () => {},
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
  return paced;
}

function wishOf(
  request: FakeRequest,
): { kind: string; ms: number; isStream: boolean } {
  const body: unknown = request.json();
  const [, kind, ms] = PROMPT.exec(promptIn(body)) ?? [];
  if (kind === undefined) throw new Error(`No such prompt: ${request.body}`);
  return { kind, ms: Number(ms), isStream: field(body, "stream") === true };
}

function promptIn(body: unknown): string {
  const messages = field(body, "messages");
  const content = Array.isArray(messages) ? field(messages[0], "content") : "";
  return typeof content === "string" ? content : "";
}

function field(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null
    ? Reflect.get(value, name)
    : undefined;
}

function* streamFor(ms: number): Iterable<Step> {
  const tokens = Math.max(1, Math.ceil(ms / TOKEN_MS));
  yield streamHead();
  for (let token = 0; token < tokens; token += 1) {
    yield chunk(event(choiceChunk({ role: "assistant", content: "x" })));
    if (ms > 0) yield { pauseMs: TOKEN_MS };
  }
  yield chunk(event(choiceChunk({}, "stop")));
  yield chunk(event(usageChunk(1, tokens)));
  yield chunk(event("[DONE]"));
  yield lastChunk;
}

function* answerAfter(ms: number): Iterable<Step> {
  if (ms > 0) yield { pauseMs: ms };
  yield* jsonResponse({
    id: "chatcmpl-upstream",
    object: "chat.completion",
    created: 1_767_622_290,
    model: "upstream-model",
    choices: [{
      index: 0,
      message: { role: "assistant", content: "x" },
      logprobs: null,
      finish_reason: "stop",
    }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  });
}
