/** Requests as a client of the stack sends them, one and many. */
import type { Stack } from "./stack.ts";

const MODEL = "neutral-3.7-plus";
const REQUEST_MS = 30_000;
/** Of an answer that failed, its end. */
const CHARS_SHOWN = 300;
/** A client that is refused waits a little, as SDKs do. */
const RETRY_MS = 100;

/** What a streamed answer was, and when its chunks came. */
export interface StreamedAnswer {
  status: number;
  text: string;
  /** Milliseconds from the request to each read from the socket. */
  readsAtMs: number[];
}

/** Sends one chat request and reads the stream to its end. */
export async function stream(
  stack: Stack,
  key: string,
): Promise<StreamedAnswer> {
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
      model: MODEL,
      stream: true,
      messages: [{ role: "user", content: "Count from one to twenty." }],
    }),
  });
  const readsAtMs: number[] = [];
  let text = "";
  const decoder = new TextDecoder();
  for await (const bytes of response.body ?? []) {
    readsAtMs.push(performance.now() - startMs);
    text += decoder.decode(bytes, { stream: true });
  }
  return { status: response.status, text, readsAtMs };
}

/** Requests that go on until they are told to stop. */
export interface Load {
  /** Requests answered completely. */
  readonly complete: number;
  /** What went wrong, one line each. */
  readonly failures: readonly string[];
  /** Lets the running requests end. */
  stop(): Promise<void>;
}

/** Keeps `streams` requests running. */
export function startLoad(stack: Stack, key: string, streams: number): Load {
  let isStopping = false;
  let complete = 0;
  const failures: string[] = [];
  const one = async () => {
    while (!isStopping) {
      try {
        const { status, text } = await stream(stack, key);
        if (status === 200 && text.trimEnd().endsWith("data: [DONE]")) {
          complete += 1;
        } else failures.push(`${status} ${text.slice(-CHARS_SHOWN)}`);
        if (status !== 200) await pause(RETRY_MS);
      } catch (error) {
        failures.push(String(error));
        await pause(RETRY_MS);
      }
    }
  };
  const running = Promise.all(Array.from({ length: streams }, one));
  return {
    get complete() {
      return complete;
    },
    failures,
    stop: async () => {
      isStopping = true;
      await running;
    },
  };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
