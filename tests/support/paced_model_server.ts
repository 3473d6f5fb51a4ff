/**
 * A model server whose answers last as long as the prompt says, and which counts
 * what runs at the same time: what a limit of concurrency is there for.
 */
import {
  type FakeModelServer,
  type FakeRequest,
  type Reply,
  startFakeModelServer,
} from "./fake_model_server.ts";
import { chatReply, field } from "./model_answers.ts";

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
    async *reply(request) {
      const { kind, ms } = wishOf(request);
      count(kind, 1);
      paced.onBegin(kind);
      try {
        yield* answerIn(ms)(request);
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

function wishOf(request: FakeRequest): { kind: string; ms: number } {
  const messages = field(request.json(), "messages");
  const content = Array.isArray(messages) ? field(messages[0], "content") : "";
  const [, kind, ms] = PROMPT.exec(String(content)) ?? [];
  if (kind === undefined) throw new Error(`No such prompt: ${request.body}`);
  return { kind, ms: Number(ms) };
}

/** An answer of so many tokens that it takes this long. */
function answerIn(ms: number): Reply {
  const tokens = Math.max(1, Math.ceil(ms / TOKEN_MS));
  return chatReply({
    words: new Array<string>(tokens).fill("x"),
    firstMs: Math.max(0, ms - TOKEN_MS * (tokens - 1)),
    betweenMs: TOKEN_MS,
  });
}
