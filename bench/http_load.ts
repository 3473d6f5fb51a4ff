/**
 * A cheap load generator: plain sockets, keep-alive, responses with a Content-Length
 * or chunks. Counts and checks every response.
 */

/** One target of a comparison. */
export interface Target {
  name: string;
  /** Up to and including `/v1`. */
  baseUrl: string;
  headers: Record<string, string>;
  model: string;
}

/** The result of a closed loop of `connections` over `seconds`. */
export interface LoadResult {
  requests: number;
  /** Responses other than a complete 200. */
  errors: number;
  seconds: number;
  /** Latencies in ms, sorted. */
  latenciesMs: number[];
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** The request, and the controls for the simulator in it. */
interface Request {
  controls: string;
  isStream: boolean;
}

const PROMPT = "Hello there, how are you today?";
const SHORT: Request = { controls: "9 tokens", isStream: false };

/** The bytes of one chat request. */
function requestBytes(
  target: Target,
  { controls, isStream }: Request,
): Uint8Array {
  const url = new URL(target.baseUrl);
  const payload = JSON.stringify({
    model: target.model,
    messages: [
      { role: "system", content: "You are a helpful assistant." },
      { role: "user", content: `${PROMPT} [simulator: ${controls}]` },
    ],
    max_tokens: 100,
    stream: isStream,
  });
  const headers = Object.entries({
    host: url.host,
    "content-type": "application/json",
    "content-length": String(encoder.encode(payload).length),
    ...target.headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`).join("");
  return encoder.encode(
    `POST ${url.pathname}/chat/completions HTTP/1.1\r\n${headers}\r\n${payload}`,
  );
}

/** One connection that sends the same request again and again. */
class Client {
  readonly #connection: Deno.TcpConn;
  readonly #buffer = new Uint8Array(65_536);
  #text = "";

  constructor(connection: Deno.TcpConn) {
    this.#connection = connection;
  }

  static async open(target: Target): Promise<Client> {
    const { hostname, port } = new URL(target.baseUrl);
    const connection = await Deno.connect({ hostname, port: Number(port) });
    connection.setNoDelay(true);
    return new Client(connection);
  }

  /** Sends the request and reads one whole answer. True when it is a complete 200. */
  async exchange(bytes: Uint8Array): Promise<boolean> {
    for (let at = 0; at < bytes.length;) {
      at += await this.#connection.write(bytes.subarray(at));
    }
    while (true) {
      const end = answerEnd(this.#text);
      if (end !== null) {
        const isOk = this.#text.startsWith("HTTP/1.1 200") &&
          this.#text.includes('"choices"');
        this.#text = this.#text.slice(end);
        return isOk;
      }
      const read = await this.#connection.read(this.#buffer);
      if (read === null) return false;
      this.#text += decoder.decode(this.#buffer.subarray(0, read));
    }
  }

  /** Sends the request and reads a stream, reporting the time of each read. */
  async stream(
    bytes: Uint8Array,
    onRead: (nowMs: number) => void,
  ): Promise<boolean> {
    await this.#connection.write(bytes);
    let tail = "";
    while (!tail.includes("[DONE]")) {
      const read = await this.#connection.read(this.#buffer);
      if (read === null) return false;
      onRead(performance.now());
      tail = (tail + decoder.decode(this.#buffer.subarray(0, read))).slice(
        -400,
      );
    }
    return true;
  }

  close(): void {
    this.#connection.close();
  }
}

/** Where the first complete response in `text` ends, or null. ASCII only, like all bodies here. */
function answerEnd(text: string): number | null {
  const headEnd = text.indexOf("\r\n\r\n");
  if (headEnd < 0) return null;
  const bodyStart = headEnd + 4;
  const length = /content-length: (\d+)/i.exec(text.slice(0, headEnd))?.[1];
  if (length !== undefined) {
    const end = bodyStart + Number(length);
    return text.length >= end ? end : null;
  }
  const end = text.indexOf("0\r\n\r\n", bodyStart);
  return end < 0 ? null : end + 5;
}

/** Runs a closed loop: each connection sends its next request after the previous response. */
export async function runLoad(
  target: Target,
  options: { connections: number; seconds: number },
): Promise<LoadResult> {
  const bytes = requestBytes(target, SHORT);
  const startedAtMs = performance.now();
  const endsAtMs = startedAtMs + options.seconds * 1_000;
  const latenciesMs: number[] = [];
  let errors = 0;
  await Promise.all(
    Array.from({ length: options.connections }, async () => {
      let client = await Client.open(target);
      while (performance.now() < endsAtMs) {
        const sentAtMs = performance.now();
        if (await client.exchange(bytes)) {
          latenciesMs.push(performance.now() - sentAtMs);
        } else {
          errors += 1;
          client.close();
          client = await Client.open(target);
        }
      }
      client.close();
    }),
  );
  return {
    requests: latenciesMs.length,
    errors,
    seconds: (performance.now() - startedAtMs) / 1_000,
    latenciesMs: latenciesMs.sort((a, b) => a - b),
  };
}

/** The result of paced streams. */
export interface StreamLoadResult {
  /** Streams that did not end with `[DONE]`. */
  broken: number;
  /** Streams with a pause longer than the bound between two reads. */
  stalled: number;
  /** Longest pause of each stream, sorted. */
  pausesMs: number[];
}

/** Opens `streams` streams, a few at a time, and watches for pauses. */
export async function runStreams(
  target: Target,
  options: {
    streams: number;
    tokens: number;
    paceMs: number;
    stallMs: number;
    spreadMs: number;
  },
): Promise<StreamLoadResult> {
  const bytes = requestBytes(target, {
    controls: `${options.tokens} tokens, ${
      1_000 / options.paceMs
    } tokens per second`,
    isStream: true,
  });
  let broken = 0;
  const pausesMs: number[] = [];
  await Promise.all(
    Array.from({ length: options.streams }, async (_, index) => {
      const delayMs = options.spreadMs * index / options.streams;
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      const client = await Client.open(target);
      let lastMs: number | null = null;
      let pauseMs = 0;
      const isWhole = await client.stream(bytes, (nowMs) => {
        if (lastMs !== null) pauseMs = Math.max(pauseMs, nowMs - lastMs);
        lastMs = nowMs;
      });
      client.close();
      if (!isWhole) broken += 1;
      pausesMs.push(pauseMs);
    }),
  );
  return {
    broken,
    stalled: pausesMs.filter((pauseMs) => pauseMs > options.stallMs).length,
    pausesMs: pausesMs.sort((a, b) => a - b),
  };
}

/** The value below which a share of the sorted numbers lies. */
export function percentile(sorted: readonly number[], share: number): number {
  const index = Math.min(sorted.length - 1, Math.floor(sorted.length * share));
  return sorted[index] ?? NaN;
}

/** The median of the numbers. */
export function median(values: readonly number[]): number {
  return percentile([...values].sort((a, b) => a - b), 0.5);
}
