// Model servers whose connections are within the process, so that a worker runs as in
// production and a server says exactly what its worker reads.
import type { Connect } from "@gateway/shared/upstream/http/connect";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Usage } from "@gateway/shared/openai/completion";
import { connectTo, type Step, type WholeRequest } from "./scripted_server.ts";
import {
  choiceChunk,
  CLOSE,
  event,
  jsonResponse,
  usageChunk,
} from "./model_answers.ts";

/** A model server that a worker can run on. */
export interface ModelServer {
  readonly connect: Connect;
}

/** A model server, and the calls that reached it. */
export interface ScriptedModelServer extends ModelServer {
  readonly calls: ScriptedCall[];
}

/** Usage of one prompt token and `completion` others. */
export const usageOf = (completion: number): Usage =>
  usageChunk(1, completion).usage;

/** Says "Hello" and ends the answer. */
export function hello(call: ScriptedCall): void {
  call.say("Hello");
  call.end();
}

/** The head of an event stream that ends with its connection. */
const STREAM_HEAD =
  "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

const says = (content: string) => event(choiceChunk({ content }));

/** The end of an answer with `n` choices. */
function finish(n: number, tokens: number): string {
  const finishes = Array.from(
    { length: n },
    (_, index) => choiceChunk({}, "stop", index),
  );
  return [...finishes, usageChunk(1, tokens), "[DONE]"].map(
    event,
  ).join("");
}

/** Fails the request after something was said, or before. */
function failure(hasSaid: boolean): Step[] {
  const error = { error: { message: "The model server failed." } };
  return hasSaid
    ? [{ send: event(error) }, CLOSE]
    : jsonResponse(error, { status: 500 });
}

/** A call of a worker, which the test answers. */
export interface ScriptedCall {
  /** As the worker sent it. */
  readonly request: ChatRequest;
  /** When the gateway closed the connection; null while it is open. */
  readonly abortedAtMs: number | null;
  /** Sends these texts of the first choice in one packet, a chunk for each. */
  say(...texts: string[]): void;
  /** Finishes every choice and ends the answer, with usage of one token by default. */
  end(tokens?: number): void;
  /** Fails: with status 500, or an error event when something was said. */
  fail(): void;
}

function scriptedCall(
  httpRequest: WholeRequest,
  steps: ReadableStreamDefaultController<Step>,
): ScriptedCall {
  const request: ChatRequest = JSON.parse(httpRequest.body);
  let hasSaid = false;
  const send = (events: string) => {
    steps.enqueue({ send: (hasSaid ? "" : STREAM_HEAD) + events });
    hasSaid = true;
  };
  // It may have ended before.
  httpRequest.left.then(() => steps.close()).catch(() => {});
  return {
    request,
    get abortedAtMs() {
      return httpRequest.leftAtMs;
    },
    say: (...texts) => send(texts.map(says).join("")),
    end(tokens = 1) {
      send(finish(request.n ?? 1, tokens));
      steps.enqueue(CLOSE);
      steps.close();
    },
    fail() {
      for (const step of failure(hasSaid)) steps.enqueue(step);
      steps.close();
    },
  };
}

/** A server whose answers wait for the test. `onCall` may answer at once. */
export function scriptedModelServer(
  onCall: (call: ScriptedCall) => void = () => {},
): ScriptedModelServer {
  const calls: ScriptedCall[] = [];
  const reply = (request: WholeRequest) =>
    new ReadableStream<Step>({
      start(steps) {
        const call = scriptedCall(request, steps);
        calls.push(call);
        onCall(call);
      },
    });
  return { calls, connect: connectTo(reply) };
}

/** Token `index` of the answer to the request with this seed. */
const tokenOf = (seed: number, index: number) => `${seed}.${index} `;

/** The text that {@link tokenBackend} says for a seed: `tokens` words. */
export function answerOf(seed: number, tokens: number): string {
  return Array.from({ length: tokens }, (_, index) => tokenOf(seed, index))
    .join("");
}

/** A server that counts the tokens it makes. */
export interface TokenBackend extends ModelServer {
  /** Tokens made for a request, the latest call of it, by its seed. */
  readonly produced: ReadonlyMap<number, number>;
  /** Calls that have not ended. */
  readonly running: number;
}

/**
 * A server whose answer follows from `seed` and `max_tokens`. It counts the tokens it
 * makes, to compare with usage.
 */
export function tokenBackend(options: {
  tokenMs: number;
  /** Fails before this token of a request; null: never. */
  failsAt?: (seed: number) => number | null;
}): TokenBackend {
  const produced = new Map<number, number>();
  let running = 0;
  return {
    produced,
    get running() {
      return running;
    },
    connect: connectTo(async function* ({ body }): AsyncIterable<Step> {
      const { seed = 0, max_tokens = 1 }: ChatRequest = JSON.parse(body);
      const failsAt = options.failsAt?.(seed) ?? null;
      produced.set(seed, 0);
      running += 1;
      try {
        for (let index = 0; index < max_tokens; index += 1) {
          yield { pauseMs: options.tokenMs };
          if (index === failsAt) return yield* failure(index > 0);
          const token = says(tokenOf(seed, index));
          yield { send: (index === 0 ? STREAM_HEAD : "") + token };
          // It has been read.
          produced.set(seed, index + 1);
        }
        yield* [{ send: finish(1, max_tokens) }, CLOSE];
      } finally {
        running -= 1;
      }
    }),
  };
}
