/**
 * Model servers that do what the test says, event by event. They speak HTTP over
 * connections within the process, so that a worker runs as in production and a
 * server says exactly what its worker reads.
 */
import type {
  ByteConnection,
  Connect,
} from "@gateway/shared/upstream/http_client";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Usage } from "@gateway/shared/openai/completion";
import { choiceChunk, event, usageChunk } from "./model_answers.ts";
import { sleep } from "./wait_for.ts";

/** A model server that {@link startMiniWorker} can run on. */
export interface ModelServer {
  readonly connect: Connect;
}

/** One request, held by the test. */
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
  fail(message?: string): void;
}

export interface ScriptedModelServer extends ModelServer {
  readonly calls: ScriptedCall[];
}

/** Usage of one prompt token and `completion` others. */
export function usageOf(completion: number): Usage {
  return {
    prompt_tokens: 1,
    completion_tokens: completion,
    total_tokens: 1 + completion,
  };
}

/** Text of the first choice. */
export function text(content: string): unknown {
  return choiceChunk({ content });
}

/** Answers "Hello" at once. */
export function hello(call: ScriptedCall): void {
  call.say(text("Hello"));
  call.end();
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();
/** Of an event stream that ends with its connection. */
export const STREAM_HEAD =
  "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const FAILURE = "HTTP/1.1 500 Error\r\ncontent-type: application/json\r\n\r\n";

/** What a server sends for a request, packet by packet, until its client hangs up. */
type Serve = (request: ChatRequest, left: AbortSignal) => AsyncIterator<string>;

/** Makes connections of one request each. A packet is made when it is read. */
export function connectTo(serve: Serve): Connect {
  return () => Promise.resolve(createConnection(serve));
}

function createConnection(serve: Serve): ByteConnection {
  const closing = new AbortController();
  const { signal } = closing;
  const closed = new Promise<never>((_, reject) =>
    signal.addEventListener("abort", () => reject(signal.reason))
  );
  closed.catch(() => {});
  const answer = Promise.withResolvers<AsyncIterator<string>>();
  let rest = new Uint8Array(0);
  return {
    write(bytes) {
      // The client writes head and body at once.
      const request = decoder.decode(bytes);
      const body = request.slice(request.indexOf("\r\n\r\n"));
      answer.resolve(serve(JSON.parse(body), signal));
      return Promise.resolve(bytes.length);
    },
    async read(buffer) {
      while (rest.length === 0) {
        const packets = await Promise.race([answer.promise, closed]);
        const step = await Promise.race([packets.next(), closed]);
        if (step.done) return null;
        rest = encoder.encode(step.value);
      }
      const bytes = Math.min(rest.length, buffer.length);
      buffer.set(rest.subarray(0, bytes));
      rest = rest.subarray(bytes);
      return bytes;
    },
    close() {
      closing.abort(new Deno.errors.BadResource("Closed"));
      void answer.promise.then((packets) => packets.return?.());
    },
  };
}

/** The end of an answer with `n` choices. */
export function finishes(n: number, usage: Usage): unknown[] {
  return [
    ...Array.from({ length: n }, (_, i) => choiceChunk({}, "stop", i)),
    usageChunk(usage.prompt_tokens, usage.completion_tokens),
    "[DONE]",
  ];
}

/** A server whose answers wait for the test. `onCall` may answer at once. */
export function scriptedModelServer(
  onCall: (call: ScriptedCall) => void = () => {},
): ScriptedModelServer {
  const calls: ScriptedCall[] = [];
  return {
    calls,
    connect: connectTo((request, left) => {
      const packets: (string | null)[] = [];
      let wake = () => {};
      let hasSaid = false;
      let abortedAtMs: number | null = null;
      const push = (...more: (string | null)[]) => {
        packets.push(...more);
        wake();
      };
      const say = (...chunks: unknown[]) => {
        push((hasSaid ? "" : STREAM_HEAD) + chunks.map(event).join(""));
        hasSaid = true;
      };
      const call: ScriptedCall = {
        request,
        get abortedAtMs() {
          return abortedAtMs;
        },
        say,
        end(usage = usageOf(1)) {
          say(...finishes(request.n ?? 1, usage));
          push(null);
        },
        fail(message = "Out of memory") {
          const error = { error: { message } };
          if (hasSaid) say(error);
          else push(FAILURE + JSON.stringify(error));
          push(null);
        },
      };
      left.addEventListener("abort", () => {
        if (packets.at(-1) !== null) abortedAtMs = performance.now();
        wake();
      });
      calls.push(call);
      onCall(call);
      return (async function* () {
        while (!left.aborted) {
          const packet = packets[0];
          if (packet === null) return;
          if (packet !== undefined) {
            packets.shift();
            yield packet;
          } else await new Promise<void>((resolve) => wake = resolve);
        }
      })();
    }),
  };
}

export type TokenBackend = ReturnType<typeof tokenBackend>;

export interface TokenBackendOptions {
  /** Pause before each token. */
  tokenMs: number;
  /** Fails before this token of a request; null: never. */
  failsAt?: (seed: number) => number | null;
}

/** Token `index` of the answer to the request with this seed. */
export function tokenOf(seed: number, index: number): string {
  return `${seed}.${index} `;
}

/** The whole answer. */
export function answerOf(seed: number, tokens: number): string {
  return Array.from({ length: tokens }, (_, index) => tokenOf(seed, index))
    .join("");
}

/**
 * A server whose answer follows from the request: `seed` says what it says and
 * `max_tokens` how much. It counts what it makes, as the ledger to compare with.
 */
export function tokenBackend(options: TokenBackendOptions) {
  const produced = new Map<number, number>();
  let running = 0;
  return {
    /** Tokens made for a request, the latest call of it, by its seed. */
    produced,
    /** Calls that have not ended. */
    get running() {
      return running;
    },
    connect: connectTo(async function* ({ seed = 0, max_tokens = 1 }, left) {
      const failsAt = options.failsAt?.(seed) ?? null;
      produced.set(seed, 0);
      running += 1;
      try {
        for (let index = 0; index < max_tokens; index += 1) {
          await sleep(options.tokenMs);
          if (left.aborted) return;
          if (index === failsAt) {
            const error = { error: { message: "The model server failed." } };
            if (index === 0) yield FAILURE + JSON.stringify(error);
            else yield event(error);
            return;
          }
          produced.set(seed, index + 1);
          const token = event(text(tokenOf(seed, index)));
          yield (index === 0 ? STREAM_HEAD : "") + token;
        }
        yield finishes(1, usageOf(max_tokens)).map(event).join("");
      } finally {
        running -= 1;
      }
    }),
  };
}
