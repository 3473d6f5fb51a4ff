/** Chat requests to a service of a cluster, which go on until they are stopped. */
import { sleep, waitFor } from "../../support/wait_for.ts";

/** What is asked for, unless a target names another. */
export const MODEL = "neutral-3.7-plus";
const REQUEST_MS = 60_000;
const WAIT_MS = 300_000;
const POLL_MS = 50;
const CHARS_SHOWN = 300;
/** A refused client waits a little, as SDKs do. */
const RETRY_MS = 100;

/** Where requests go, and the API key that they have. */
export interface Target {
  /** The base URL of the API, with `/v1`. */
  readonly url: string;
  readonly key: string;
  readonly model?: string;
}

/** Sends one chat request and reads its answer to the end. */
export async function chat(
  { url, key, model = MODEL }: Target,
  { stream, client }: { stream: boolean; client?: Deno.HttpClient },
): Promise<{ status: number; text: string; retryAfter: string | null }> {
  const response = await fetch(`${url}/chat/completions`, {
    ...client && { client },
    method: "POST",
    headers: {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model,
      stream,
      messages: [{ role: "user", content: "Say hello." }],
    }),
    signal: AbortSignal.timeout(REQUEST_MS),
  });
  const { status, headers } = response;
  const retryAfter = headers.get("retry-after");
  return { status, text: await response.text(), retryAfter };
}

/** Whether an answer of {@link chat} is whole. */
export function isWhole({ status, text }: { status: number; text: string }) {
  return status === 200 &&
    (text.startsWith("{")
      ? text.includes('"finish_reason":"stop"')
      : text.endsWith("data: [DONE]\n\n"));
}

/**
 * Requests in a number of turns, streams and others: half of them on connections that
 * are kept, and half on new ones.
 */
export class Load {
  /** How many answers were whole. */
  whole = 0;
  /**
   * Requests that were refused because Redis or a worker missed a deadline, as on a
   * machine that has too much to do: SDKs send them again.
   */
  late = 0;
  /** What the others were: refused for good, or cut off. */
  readonly lost: string[] = [];
  readonly #target: Target;
  readonly #running: Promise<unknown>;
  #isStopping = false;

  constructor(target: Target, turns: number) {
    this.#target = target;
    this.#running = Promise.all(
      Array.from({ length: turns }, (_, index) => this.#ask(index)),
    );
  }

  /** Waits until this many answers were whole. */
  async reach(answers: number): Promise<void> {
    await waitFor(() => this.whole >= answers, {
      what: () => `${answers} answers, of which ${this.whole} came`,
      timeoutMs: WAIT_MS,
      intervalMs: POLL_MS,
    });
  }

  /** Lets the running requests end. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.#running;
  }

  async #ask(index: number): Promise<void> {
    const stream = index % 2 === 0;
    const isKept = index % 4 < 2;
    using client = Deno.createHttpClient({
      poolMaxIdlePerHost: isKept ? 1 : 0,
    });
    while (!this.#isStopping) {
      try {
        const answer = await chat(this.#target, { stream, client });
        if (isWhole(answer)) {
          this.whole += 1;
          continue;
        }
        const { status, text, retryAfter } = answer;
        if (status === 503 && retryAfter !== null) this.late += 1;
        else this.lost.push(`${status} ${text.slice(-CHARS_SHOWN)}`);
      } catch (error) {
        this.lost.push(String(error));
      }
      await sleep(RETRY_MS);
    }
  }
}
