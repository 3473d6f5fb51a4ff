/** Shared by the conformance cases: a running gateway and shorthands to call it. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import {
  type ChatCompletion,
  type ChatCompletionChunk,
  chatCompletionChunkSchema,
  chatCompletionSchema,
  errorBodySchema,
} from "@gateway/shared/openai/completion";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { sleep } from "../support/wait_for.ts";

/** The model of all cases. */
export const MODEL = "neutral-3.7-plus";

/** The smallest request, called M1 in the cases. */
export const M1 = {
  model: MODEL,
  messages: [{ role: "user", content: "ping" }],
};

/** The body of every authentication failure, to the letter. */
export const UNAUTHORIZED = {
  error: { code: "unauthorized", message: "unauthorized", type: "error" },
};

/** A request and its answer, for the comparison with the description of the API. */
export interface Exchange {
  method: string;
  url: URL;
  /** Undefined without a body, null for one that is not text. */
  requestBody: BodyInit | null | undefined;
  response: Response;
  /** The body; empty for a stream whose end nobody waited for. */
  received: Promise<string>;
}

/** A running gateway, and shorthands to call it. */
export interface Context {
  readonly gateway: LaunchedGateway;
  /** Where chat requests go. */
  readonly chatUrl: string;
  readonly key: string;
  /** All requests so far. */
  readonly exchanges: Exchange[];
  /** Fetches as the global function does, and keeps requests and answers. */
  fetch(to: string, init?: RequestInit): Promise<Response>;
  /** Calls a path below `/v1` with the key; `init.headers` come on top. */
  call(path: string, init?: RequestInit): Promise<Response>;
  /** Posts a chat request; fields of `change` replace those of {@link M1}. */
  chat(change?: object, init?: RequestInit): Promise<Response>;
  /** Posts a body as it is to the chat endpoint, as JSON by default. */
  post(body: BodyInit, headers?: Record<string, string>): Promise<Response>;
  /** The answer to a request that is not refused. */
  answer(change?: object): Promise<ChatCompletion>;
  /** The stream that answers a request, read to its end. */
  stream(change?: object): Promise<StreamAnswer>;
}

/** A stream that was read to its end. */
export interface StreamAnswer {
  response: Response;
  lines: string[];
  /** Decoded chunks, or the error event in the place of one. */
  chunks: (ChatCompletionChunk & { error?: unknown })[];
  isDone: boolean;
  /** The text of choice 0. */
  content: string;
}

/** A group of cases by their titles, each a step of the test, in this order. */
export interface Cases {
  [title: string]: (context: Context) => Promise<void> | void;
}

/** Returns shorthands that call a gateway and check its answers against the schemas. */
export function createContext(gateway: LaunchedGateway): Context {
  const authorization = `Bearer ${gateway.state.api_key}`;
  const exchanges: Exchange[] = [];
  const fetch = async (to: string, init: RequestInit = {}) => {
    const response = await globalThis.fetch(to, init);
    const type = response.headers.get("content-type") ?? "";
    // A second reader would disturb the pace of a stream.
    const received = type.startsWith("text/event-stream")
      ? Promise.resolve("")
      : response.clone().text();
    const { method = "GET", body: requestBody } = init;
    exchanges.push({
      method,
      url: new URL(to),
      requestBody,
      response,
      received,
    });
    return response;
  };
  const call = (path: string, init: RequestInit = {}) =>
    fetch(`${gateway.baseUrl()}${path}`, {
      ...init,
      headers: { authorization, ...Object(init.headers) },
    });
  const chat = (change: object = {}, init: RequestInit = {}) =>
    call("/chat/completions", {
      ...init,
      method: "POST",
      headers: { "content-type": "application/json", ...Object(init.headers) },
      body: JSON.stringify({ ...M1, ...change }),
    });
  return {
    gateway,
    chatUrl: `${gateway.baseUrl()}/chat/completions`,
    key: gateway.state.api_key,
    call,
    chat,
    fetch,
    exchanges,
    post: (body, headers = { "content-type": "application/json" }) =>
      call("/chat/completions", { method: "POST", headers, body }),
    answer: async (change = {}) => {
      const response = await chat(change);
      const text = await response.text();
      assert.equal(response.status, 200, text);
      return chatCompletionSchema.parse(JSON.parse(text));
    },
    stream: async (change = {}) => {
      const result = await readStream(await chat({ ...change, stream: true }));
      const { response, lines } = result;
      const exchange = exchanges.find((one) => one.response === response);
      if (exchange) exchange.received = Promise.resolve(lines.join("\n"));
      return result;
    },
  };
}

/** Reads a stream to its end and checks what holds for every stream. */
export async function readStream(response: Response): Promise<StreamAnswer> {
  assert.equal(response.status, 200);
  const header = (name: string) => response.headers.get(name);
  assert.match(header("content-type") ?? "", /^text\/event-stream/);
  assert.equal(header("cache-control"), "no-cache, no-transform");
  assert.equal(header("x-accel-buffering"), "no");
  assert.equal(header("content-length"), null);
  const lines = (await response.text()).split("\n");
  const data = lines.filter((line) => line.startsWith("data: "))
    .map((line) => line.slice("data: ".length));
  const isDone = data.at(-1) === "[DONE]";
  const chunks: StreamAnswer["chunks"] = (isDone ? data.slice(0, -1) : data)
    .map((text) => JSON.parse(text));
  for (const chunk of chunks) {
    if (!("error" in chunk)) chatCompletionChunkSchema.parse(chunk);
  }
  const content = chunks.map((chunk) => chunk.choices?.[0])
    .filter((choice) => choice?.index === 0)
    .map((choice) => choice?.delta.content ?? "").join("");
  return { response, lines, chunks, isDone, content };
}

/**
 * Checks an error answer as the cases' `E(status, code, param)` means it; `undefined`
 * fields are not looked at.
 */
export async function assertError(
  response: Response,
  { status, code, param }: {
    status: number;
    code?: string | undefined;
    param?: string | undefined;
  },
  request = "",
): Promise<void> {
  const text = await response.text();
  const what = `${request} ${response.url}: ${text}`;
  assert.equal(response.status, status, what);
  const type = response.headers.get("content-type") ?? "";
  assert.match(type, /^application\/json/, what);
  assertRequestId(response, what);
  const { error } = errorBodySchema.parse(JSON.parse(text));
  if (code !== undefined) assert.equal(error.code, code, what);
  if (param !== undefined) assert.equal(error.param, param, what);
}

/** Every answer, good or bad, names its request. */
export function assertRequestId({ headers }: Response, what: string): void {
  const id = headers.get("x-request-id") ?? "";
  assert.match(id, /^req_[0-9a-f]{32}$/, what);
}

/**
 * Sends bytes over a plain socket and returns all that comes back until the end or
 * `quietMs` of silence after the first bytes.
 */
export async function rawExchange(
  url: string,
  pieces: (string | Uint8Array | { waitMs: number })[],
  quietMs = 500,
): Promise<string> {
  const { hostname, port } = new URL(url);
  using connection = await Deno.connect({ hostname, port: Number(port) });
  const writer = connection.writable.getWriter();
  for (const piece of pieces) {
    if (typeof piece === "object" && "waitMs" in piece) {
      await sleep(piece.waitMs);
    } else await writer.write(Buffer.from(piece));
  }
  // Awaited: `using` would close the connection under it.
  return await readUntilQuiet(connection, quietMs);
}

const PATIENT_MS = 30_000;

/** Reads until nothing more has come for `quietMs`, or the connection has ended. */
export async function readUntilQuiet(connection: Deno.Conn, quietMs: number) {
  const decoder = new TextDecoder();
  const buffer = new Uint8Array(65_536);
  let text = "";
  while (true) {
    // A busy machine may take its time to answer at all.
    const waitMs = text === "" ? PATIENT_MS : quietMs;
    const quiet = setTimeout(() => connection.close(), waitMs);
    const read = await connection.read(buffer).catch(() => null);
    clearTimeout(quiet);
    if (read === null) return text;
    text += decoder.decode(buffer.subarray(0, read), { stream: true });
  }
}
