// Model servers whose connections are within the process, so that a worker runs as in
// production and a server says exactly what its worker reads.
import type { Connect } from "@gateway/shared/upstream/http_client";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Usage } from "@gateway/shared/openai/completion";
import { connectTo, type FakeRequest, type Step } from "./fake_model_server.ts";
import {
  choiceChunk,
  event,
  jsonResponse,
  usageChunk,
} from "./model_answers.ts";

/** A model server that {@link startMiniWorker} can run on. */
export interface ModelServer {
  readonly connect: Connect;
}

export interface ScriptedCall {
  /** As the worker sent it. */
  readonly request: ChatRequest;
  /** When the gateway closed the connection; null while it is open. */
  readonly abortedAtMs: number | null;
  /** Sends these chunks in one packet. */
  say(...chunks: unknown[]): void;
  /** Finishes every choice and ends the answer. */
  end(usage?: Usage): void;
  /** Fails: with status 500, or an error event when something was said. */
  fail(): void;
}

export type ScriptedModelServer = ReturnType<typeof scriptedModelServer>;

/** Usage of one prompt token and `completion` others. */
export const usageOf = (completion: number): Usage =>
  usageChunk(1, completion).usage;

export const text = (content: string): unknown => choiceChunk({ content });

export function hello(call: ScriptedCall): void {
  call.say(text("Hello"));
  call.end();
}

/** Of an event stream that ends with its connection. */
export const STREAM_HEAD =
  "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const CLOSE: Step = { close: true };

/** The end of an answer with `n` choices. */
export function finishes(n: number, usage: Usage): unknown[] {
  return [
    ...Array.from({ length: n }, (_, i) => choiceChunk({}, "stop", i)),
    usageChunk(usage.prompt_tokens, usage.completion_tokens),
    "[DONE]",
  ];
}

/** Fails the request after something was said, or before. */
function failure(hasSaid: boolean): Step[] {
  const error = { error: { message: "The model server failed." } };
  return hasSaid
    ? [{ send: event(error) }, CLOSE]
    : jsonResponse(error, { status: 500 });
}

/** A server whose answers wait for the test. `onCall` may answer at once. */
export function scriptedModelServer(
  onCall: (call: ScriptedCall) => void = () => {},
) {
  const calls: ScriptedCall[] = [];
  const reply = (asked: FakeRequest) =>
    new ReadableStream<Step>({
      start(steps) {
        const request: ChatRequest = JSON.parse(asked.body);
        let hasSaid = false;
        const say = (...chunks: unknown[]) => {
          const head = hasSaid ? "" : STREAM_HEAD;
          hasSaid = true;
          steps.enqueue({ send: head + chunks.map(event).join("") });
        };
        const call: ScriptedCall = {
          request,
          get abortedAtMs() {
            return asked.leftAtMs;
          },
          say,
          end(usage = usageOf(1)) {
            say(...finishes(request.n ?? 1, usage));
            steps.enqueue(CLOSE);
            steps.close();
          },
          fail() {
            for (const step of failure(hasSaid)) steps.enqueue(step);
            steps.close();
          },
        };
        // It may have ended before.
        asked.left.then(() => steps.close()).catch(() => {});
        calls.push(call);
        onCall(call);
      },
    });
  return { calls, connect: connectTo(reply) };
}

/** Token `index` of the answer to the request with this seed. */
const tokenOf = (seed: number, index: number) => `${seed}.${index} `;

export function answerOf(seed: number, tokens: number): string {
  return Array.from({ length: tokens }, (_, index) => tokenOf(seed, index))
    .join("");
}

/** A server whose answer follows from `seed` and `max_tokens`. It counts the tokens it makes, to compare with usage. */
export function tokenBackend(options: {
  tokenMs: number;
  /** Fails before this token of a request; null: never. */
  failsAt?: (seed: number) => number | null;
}) {
  const produced = new Map<number, number>();
  let running = 0;
  return {
    /** Tokens made for a request, the latest call of it, by its seed. */
    produced,
    /** Calls that have not ended. */
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
          if (index === failsAt) {
            return yield* failure(index > 0);
          }
          const token = event(text(tokenOf(seed, index)));
          yield { send: (index === 0 ? STREAM_HEAD : "") + token };
          // It has been read.
          produced.set(seed, index + 1);
        }
        const end = finishes(1, usageOf(max_tokens)).map(event).join("");
        yield* [{ send: end }, CLOSE];
      } finally {
        running -= 1;
      }
    }),
  };
}
