/**
 * The load client: plain sockets with keep-alive, which read no more of an answer
 * than is needed to see that it is complete. Runs in the process of the benchmark.
 */
import { CHAT, type Lane, type Pace } from "./lanes.ts";
import { sleep } from "../tests/support/wait_for.ts";

/** Where the load goes. */
export interface Target {
  name: string;
  /** Up to and including `/v1`; connections are divided among several. */
  baseUrls: readonly string[];
  /** Sent with each request. */
  headers: Readonly<Record<string, string>>;
  /** What is asked for; by default chat completions. */
  lane?: Lane;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const SENTENCE = "The quick brown fox jumps over the lazy dog, again. ";
/** What the JSON around the prompt takes. */
const AROUND_BYTES = 130;
const BUFFER_BYTES = 64 * 1_024;
/** An answer that takes longer is wrong. */
const ANSWER_MS_MAX = 60_000;
/** The last event and the last chunk of a stream, or the end of the event. */
const STREAM_END_CHARS = 160;
/** What whole answers and the ends of streams have, and errors do not. */
const RIGHT = /"choices"|data: \[DONE\]|"message_stop"|"usage"/;

/**
 * Returns the bytes of one request whose body has about `bodyBytes`: for a stream at
 * this pace, or for a whole answer.
 */
export function requestTo(
  { baseUrls: [baseUrl = ""], headers: ofTarget, lane = CHAT }: Target,
  bodyBytes: number,
  pace?: Pace,
): Uint8Array {
  const { host, pathname } = new URL(baseUrl);
  const sentences = Math.ceil((bodyBytes - AROUND_BYTES) / SENTENCE.length);
  const order = pace && `[${pace.tokens} tokens, ${pace.paceMs} ms]`;
  const content = SENTENCE.repeat(sentences) + (order ?? "");
  const body = JSON.stringify(lane.body(content, pace !== undefined));
  const headers = Object.entries({
    host,
    "content-type": "application/json",
    "content-length": String(body.length),
    ...ofTarget,
  }).map(([name, value]) => `${name}: ${value}\r\n`).join("");
  return encoder.encode(
    `POST ${pathname}${lane.path} HTTP/1.1\r\n${headers}\r\n${body}`,
  );
}

/** One connection, opened anew after a wrong answer. */
class Client {
  readonly #address: Deno.ConnectOptions;
  readonly #buffer = new Uint8Array(BUFFER_BYTES);
  #connection: Deno.TcpConn | undefined;

  constructor({ baseUrls }: Target, index: number) {
    const url = new URL(baseUrls[index % baseUrls.length] ?? "");
    this.#address = { hostname: url.hostname, port: Number(url.port) };
  }

  /**
   * Sends the request, reads one answer, and says what is wrong with it, if anything.
   */
  async exchange(
    request: Uint8Array,
    onRead = () => {},
    timeoutMs = ANSWER_MS_MAX,
  ): Promise<string | undefined> {
    const timer = setTimeout(() => this.close(), timeoutMs);
    // Refused, reset, or closed by the timer: wrong as well.
    const wrong = await this.#tryExchange(request, onRead).catch(String);
    clearTimeout(timer);
    if (wrong !== undefined) this.close();
    return wrong;
  }

  close(): void {
    this.#connection?.close();
    this.#connection = undefined;
  }

  async #connect(): Promise<Deno.TcpConn> {
    if (this.#connection !== undefined) return this.#connection;
    const connection = await Deno.connect(this.#address);
    connection.setNoDelay(true);
    this.#connection = connection;
    return connection;
  }

  async #tryExchange(request: Uint8Array, onRead: () => void) {
    const connection = await this.#connect();
    for (let at = 0; at < request.length;) {
      at += await connection.write(request.subarray(at));
    }
    let head = "";
    let body = "";
    while (!isWhole(head, body)) {
      const count = await connection.read(this.#buffer);
      if (count === null) return "closed early";
      onRead();
      body += decoder.decode(this.#buffer.subarray(0, count));
      const headEnd = head === "" ? body.indexOf("\r\n\r\n") : -1;
      if (headEnd > 0) {
        head = body.slice(0, headEnd).toLowerCase();
        body = body.slice(headEnd + 4);
      }
      if (head.includes("event-stream")) body = body.slice(-STREAM_END_CHARS);
    }
    const isRight = head.startsWith("http/1.1 200") && RIGHT.test(body);
    return isRight ? undefined : head.split("\r\n", 1)[0];
  }
}

/** Whether this is all of the answer. ASCII only, like everything here. */
function isWhole(head: string, body: string): boolean {
  const length = /content-length: *(\d+)/.exec(head)?.[1];
  return length === undefined
    ? body.endsWith("0\r\n\r\n")
    : body.length >= Number(length);
}

/** Runs a client for each connection, and gathers what was wrong. */
async function runClients(
  target: Target,
  count: number,
  runOne: (client: Client, index: number, wrong: string[]) => Promise<void>,
): Promise<{ wrong: string[]; seconds: number }> {
  const startedAtMs = performance.now();
  const wrong: string[] = [];
  await Promise.all(Array.from({ length: count }, async (_, index) => {
    const client = new Client(target, index);
    await runOne(client, index, wrong);
    client.close();
  }));
  return { wrong, seconds: (performance.now() - startedAtMs) / 1_000 };
}

/**
 * Each connection sends its next request, in turn one of these, after the last answer;
 * one at least.
 */
export async function runLoop(
  target: Target,
  { connections, seconds, requests }: {
    connections: number;
    seconds: number;
    requests: readonly Uint8Array[];
  },
) {
  const endsAtMs = performance.now() + seconds * 1_000;
  const latenciesMs: number[] = [];
  let next = 0;
  const run = async (client: Client, _: number, wrong: string[]) => {
    let nowMs = performance.now();
    do {
      const sentAtMs = nowMs;
      const request = requests[next++ % requests.length] ?? new Uint8Array();
      const problem = await client.exchange(request);
      nowMs = performance.now();
      if (problem === undefined) latenciesMs.push(nowMs - sentAtMs);
      else wrong.push(problem);
    } while (nowMs < endsAtMs);
  };
  const result = await runClients(target, connections, run);
  return { ...result, latenciesMs: latenciesMs.sort((a, b) => a - b) };
}

/**
 * Opens the streams in half of the time of one, so that all are open in the second
 * half.
 */
export async function runStreams(target: Target, count: number, pace: Pace) {
  const request = requestTo(target, 200, pace);
  const lengthMs = pace.tokens * pace.paceMs;
  /** Between any two reads of a stream, and the longest of each stream. */
  const [gapsMs, pausesMs]: [number[], number[]] = [[], []];
  const run = async (client: Client, index: number, wrong: string[]) => {
    await sleep(lengthMs / 2 * index / count);
    let lastMs = NaN;
    let pauseMs = 0;
    const onRead = () => {
      const nowMs = performance.now();
      if (!Number.isNaN(lastMs)) {
        gapsMs.push(nowMs - lastMs);
        pauseMs = Math.max(pauseMs, nowMs - lastMs);
      }
      lastMs = nowMs;
    };
    const timeoutMs = lengthMs + ANSWER_MS_MAX;
    const problem = await client.exchange(request, onRead, timeoutMs);
    if (problem !== undefined) wrong.push(problem);
    pausesMs.push(pauseMs);
  };
  const result = await runClients(target, count, run);
  for (const each of [gapsMs, pausesMs]) each.sort((a, b) => a - b);
  return { ...result, gapsMs, pausesMs };
}
