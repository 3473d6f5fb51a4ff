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
const PROMPT = "Hello there, how are you today?";

/** The bytes of one chat request, with these controls for the simulator in it. */
function requestBytes(
  target: Target,
  controls: string,
  stream: boolean,
): Uint8Array {
  const url = new URL(target.baseUrl);
  const payload = JSON.stringify({
    model: "neutral-3.7-plus",
    messages: [
      { role: "system", content: "You are a helpful assistant." },
      { role: "user", content: `${PROMPT} [simulator: ${controls}]` },
    ],
    max_tokens: 100,
    stream,
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
  async exchange(bytes: Uint8Array, onRead = () => {}): Promise<boolean> {
    for (let at = 0; at < bytes.length;) {
      at += await this.#connection.write(bytes.subarray(at));
    }
    let text = "";
    while (!isWhole(text)) {
      const read = await this.#connection.read(this.#buffer);
      if (read === null) return false;
      onRead();
      text += decoder.decode(this.#buffer.subarray(0, read));
    }
    return text.startsWith("HTTP/1.1 200") && text.includes('"choices"') &&
      (text.includes("[DONE]") || !text.includes("\ndata: "));
  }

  close(): void {
    this.#connection.close();
  }
}

/** Whether this is a complete response. ASCII only, like all bodies here. */
function isWhole(text: string): boolean {
  const headEnd = text.indexOf("\r\n\r\n");
  if (headEnd < 0) return false;
  const length = /content-length: (\d+)/i.exec(text.slice(0, headEnd))?.[1];
  return length === undefined
    ? text.endsWith("0\r\n\r\n")
    : text.length >= headEnd + 4 + Number(length);
}

/** Runs a closed loop: each connection sends its next request after the previous response. */
export async function runLoad(
  target: Target,
  options: { connections: number; seconds: number },
): Promise<LoadResult> {
  const bytes = requestBytes(target, "9 tokens", false);
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
  /** Longest pause between two reads of each stream, sorted. */
  pausesMs: number[];
}

/** Opens `streams` streams, a few at a time, and watches for pauses. */
export async function runStreams(
  target: Target,
  options: {
    streams: number;
    tokens: number;
    paceMs: number;
    spreadMs: number;
  },
): Promise<StreamLoadResult> {
  const { streams, tokens, paceMs, spreadMs } = options;
  const pace = `${tokens} tokens, ${1_000 / paceMs} tokens per second`;
  const bytes = requestBytes(target, pace, true);
  let broken = 0;
  const pausesMs: number[] = [];
  await Promise.all(
    Array.from({ length: streams }, async (_, index) => {
      const delayMs = spreadMs * index / streams;
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      const client = await Client.open(target);
      let lastMs: number | null = null;
      let pauseMs = 0;
      const isComplete = await client.exchange(bytes, () => {
        const nowMs = performance.now();
        if (lastMs !== null) pauseMs = Math.max(pauseMs, nowMs - lastMs);
        lastMs = nowMs;
      });
      client.close();
      if (!isComplete) broken += 1;
      pausesMs.push(pauseMs);
    }),
  );
  return { broken, pausesMs: pausesMs.sort((a, b) => a - b) };
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
