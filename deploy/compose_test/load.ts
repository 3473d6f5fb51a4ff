/** Sends requests as a client of the stack, one or many. */
import type { Stack } from "./stack.ts";

const MODEL = "neutral-3.7-plus";
const REQUEST_MS = 30_000;
/** How much of the end of a failed response is shown. */
const CHARS_SHOWN = 300;
/** A refused client waits a little, as SDKs do. */
const RETRY_MS = 100;

/** The kinds of request, sent in turn: a stream, one JSON response, and one with a large body. */
export const KINDS = ["stream", "whole", "large"] as const;
/** 600 kB: still being sent when an edge stops, and in pieces on the bus. */
const LARGE = "word ".repeat(120_000);
const QUESTION = "Count from one to twenty.";
const CONTENTS = { stream: QUESTION, whole: QUESTION, large: LARGE };

/** A response. */
export interface Answer {
  status: number;
  text: string;
  /** The header `Retry-After`. */
  retryAfter: string | null;
  /** Milliseconds from the request to each read from the socket. */
  readsAtMs: number[];
}

/** Sends one chat request, with more fields if given, and reads the response to its end. */
export async function send(
  stack: Stack,
  key: string,
  kind: typeof KINDS[number],
  fields: Record<string, unknown> = {},
): Promise<Answer> {
  const startMs = performance.now();
  const response = await fetch(`${stack.url}/v1/chat/completions`, {
    client: stack.client,
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
  return {
    status: response.status,
    text,
    retryAfter: response.headers.get("retry-after"),
    readsAtMs,
  };
}

/** Whether the response is complete. */
function isComplete({ status, text }: Answer): boolean {
  if (status !== 200) return false;
  return text.startsWith("{")
    ? text.includes(`"finish_reason":"`)
    : text.trimEnd().endsWith("data: [DONE]");
}

/** Whether an SDK retries after this response, or the response is a 200 that was cut off. */
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

/** Requests that continue until `stop()`. */
export type Load = ReturnType<typeof startLoad>;

/** Keeps `streams` requests running, of every kind. */
export function startLoad(stack: Stack, key: string, streams: number) {
  let isStopping = false;
  let complete = 0;
  let completeAtMs = performance.now();
  let longestPauseMs = 0;
  let late = 0;
  const completed = () => {
    const nowMs = performance.now();
    longestPauseMs = Math.max(longestPauseMs, nowMs - completeAtMs);
    completeAtMs = nowMs;
    complete += 1;
  };
  const failures: string[] = [];
  const notRetryable: string[] = [];
  const one = async (first: number) => {
    for (let turn = first; !isStopping; turn++) {
      const kind = KINDS[turn % KINDS.length] ?? "stream";
      try {
        const answer = await send(stack, key, kind);
        if (isComplete(answer)) {
          completed();
        } else if (isLate(answer)) {
          late += 1;
          await pause(RETRY_MS);
        } else {
          const { status, retryAfter, text } = answer;
          const line = `${kind} ${status} retry-after ${retryAfter} ${
            text.slice(-CHARS_SHOWN)
          }`;
          failures.push(line);
          if (!isRetryable(answer)) notRetryable.push(line);
          await pause(RETRY_MS);
        }
      } catch (error) {
        // Cut off: a stream that had begun, or a request that had arrived in part.
        failures.push(`${kind} ${error}`);
        await pause(RETRY_MS);
      }
    }
  };
  const running = Promise.all(
    Array.from({ length: streams }, (_, index) => one(index)),
  );
  return {
    /** Requests with a complete response. */
    get complete() {
      return complete;
    },
    /** The longest time without a complete response. */
    get longestPauseMs() {
      return longestPauseMs;
    },
    /** Requests for which Redis or the workers missed a deadline. Not among the failures. */
    get late() {
      return late;
    },
    /** Other failures, one line each. */
    failures,
    /** Of these, refusals that an SDK would not retry. */
    notRetryable,
    /** Lets the running requests end. */
    stop: async () => {
      isStopping = true;
      await running;
    },
  };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
