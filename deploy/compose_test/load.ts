/** Sends requests as a client of the stack, one or many. */
import { sleep } from "../../tests/support/wait_for.ts";
import { type Stack, until } from "./stack.ts";

const MODEL = "neutral-3.7-plus";
const REQUEST_MS = 30_000;
/** How much of the end of a failed response is shown. */
const CHARS_SHOWN = 300;
/** A refused client waits a little, as SDKs do. */
const RETRY_MS = 100;
const REPORTED_MAX = 5;

const QUESTION = "Count from one to twenty.";
/**
 * The kinds of request, sent in turn: a stream, one JSON response, and one with a large
 * body.
 */
const CONTENTS = {
  stream: QUESTION,
  whole: QUESTION,
  /** 600 kB: still being sent when an edge stops, and in pieces on the bus. */
  large: "word ".repeat(120_000),
};
const KINDS = ["stream", "whole", "large"] as const;

/** A response that was read to its end. */
export interface Answer {
  status: number;
  text: string;
  retryAfter: string | null;
  /** Milliseconds from the request to each read from the socket. */
  readsAtMs: number[];
}

/**
 * Sends one chat request, with more fields if they are given, and reads the response to
 * its end.
 */
export async function send(
  { url, client }: Stack,
  key: string,
  { kind, fields = {} }: {
    kind: typeof KINDS[number];
    fields?: Record<string, unknown>;
  },
): Promise<Answer> {
  const startMs = performance.now();
  const response = await fetch(`${url}/v1/chat/completions`, {
    client,
    method: "POST",
    signal: AbortSignal.timeout(REQUEST_MS),
    headers: {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
    },
    body: JSON.stringify({
      ...fields,
      model: MODEL,
      stream: kind === "stream",
      messages: [{ role: "user", content: CONTENTS[kind] }],
    }),
  });
  const readsAtMs: number[] = [];
  let text = "";
  const decoder = new TextDecoder();
  for await (const bytes of response.body ?? []) {
    readsAtMs.push(performance.now() - startMs);
    text += decoder.decode(bytes, { stream: true });
  }
  const retryAfter = response.headers.get("retry-after");
  return { status: response.status, text, retryAfter, readsAtMs };
}

/** Whether the response is complete. */
function isComplete({ status, text }: Answer): boolean {
  if (status !== 200) return false;
  return text.startsWith("{")
    ? text.includes(`"finish_reason":"`)
    : text.trimEnd().endsWith("data: [DONE]");
}

/**
 * Whether an SDK retries after this response, or the response is a 200 that was cut
 * off.
 */
function isRetryable({ status, retryAfter }: Answer): boolean {
  return status === 200 || (status >= 500 && retryAfter !== null);
}

/**
 * Whether an edge refused the request because Redis or the workers missed their
 * deadline, as on a machine that also starts containers. An SDK waits and retries.
 */
function isLate({ status, retryAfter, text }: Answer): boolean {
  return status === 503 && retryAfter !== null &&
    /cannot check API keys|"overloaded"/.test(text);
}

/** Requests that continue until {@link Load.stop}. */
export class Load {
  /** Requests with a complete response. */
  complete = 0;
  /** The longest time without a complete response. */
  longestPauseMs = 0;
  /**
   * Requests for which Redis or the workers missed a deadline. Not among the failures.
   */
  late = 0;
  /** Other failures, one line each. */
  readonly failures: string[] = [];
  /** The refusals among these failures that an SDK would not retry. */
  readonly notRetryable: string[] = [];
  readonly #stack: Stack;
  readonly #key: string;
  readonly #running: Promise<unknown>;
  #isStopping = false;
  #completeAtMs = performance.now();

  /** Keeps `streams` requests running, of every kind. */
  constructor(stack: Stack, key: string, streams: number) {
    this.#stack = stack;
    this.#key = key;
    this.#running = Promise.all(
      Array.from({ length: streams }, (_, index) => this.#ask(index)),
    );
  }

  /** Waits for `more` complete responses. */
  async answers(more: number, what = "answers"): Promise<void> {
    const enough = this.complete + more;
    await until(what, () => this.complete >= enough);
  }

  /** Lets the running requests end. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.#running;
  }

  /** The failures, with the log of the proxy. */
  async report(): Promise<string> {
    const { failures, late, complete } = this;
    return [
      `${failures.length} failed, ${late} late, ${complete} complete`,
      ...this.notRetryable.map((line) => `not retryable: ${line}`),
      ...failures.slice(0, REPORTED_MAX),
      await this.#stack.compose("logs", "--tail", "5", "proxy"),
    ].join("\n");
  }

  /** Sends one request after the other, the kinds in turn. */
  async #ask(first: number): Promise<void> {
    for (let turn = first; !this.#isStopping; turn++) {
      const kind = KINDS[turn % KINDS.length] ?? "stream";
      try {
        const answer = await send(this.#stack, this.#key, { kind });
        if (this.#count(kind, answer)) continue;
      } catch (error) {
        // Cut off: a stream that had begun, or a request that had arrived in part.
        this.failures.push(`${kind} ${error}`);
      }
      await sleep(RETRY_MS);
    }
  }

  /** Returns whether the next request follows at once. */
  #count(kind: string, answer: Answer): boolean {
    if (isComplete(answer)) {
      const nowMs = performance.now();
      const pauseMs = nowMs - this.#completeAtMs;
      this.longestPauseMs = Math.max(this.longestPauseMs, pauseMs);
      this.#completeAtMs = nowMs;
      this.complete += 1;
      return true;
    }
    const { status, retryAfter, text } = answer;
    const end = text.slice(-CHARS_SHOWN);
    const line = `${kind} ${status} retry-after ${retryAfter} ${end}`;
    if (isLate(answer)) this.late += 1;
    else this.failures.push(line);
    if (!isRetryable(answer)) this.notRetryable.push(line);
    return false;
  }
}
