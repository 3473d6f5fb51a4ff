/** A gateway of two edges that keeps answers, and a client that reads them. */
import assert from "node:assert/strict";
import { callApi, postChat } from "../../support/chat_request.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import type {
  LimitedGateway,
  LimitedOptions,
  TestKey,
} from "../../support/gateway/limited.ts";

/** Starts it; its model server waits for the test unless it is told what to do. */
export function startKeeping(
  options: LimitedOptions = {},
): Promise<LimitedGateway> {
  return startGateway("limited", {
    edges: 2,
    keeps: {},
    onCall: () => {},
    ...options,
  });
}

/** A request whose answer is to be kept. */
export interface KeptAsk {
  /** The first if left out. */
  edge?: number;
  /** `X-Gateway-Keep`; null: the request has none. A minute if left out. */
  keep?: string | null;
  headers?: Record<string, string>;
  body?: object;
  signal?: AbortSignal;
}

/** Asks for a stream that is kept. */
export function askKept(
  gateway: LimitedGateway,
  { value }: TestKey,
  { edge = 0, keep = "60", headers = {}, body = {}, signal }: KeptAsk = {},
): Promise<Response> {
  return postChat(gateway.baseUrl(edge), value, {
    body: { max_tokens: 16, stream: true, ...body },
    headers: { ...keep !== null && { "x-gateway-keep": keep }, ...headers },
    ...signal && { signal },
  });
}

/** Asks for an answer by its id, or deletes it. */
export function getKept(
  [gateway, { value }]: [LimitedGateway, TestKey],
  id: string,
  { edge = 1, ...init }: RequestInit & { edge?: number } = {},
): Promise<Response> {
  return callApi(`${gateway.baseUrl(edge)}/answers/${id}`, value, {
    ...init,
    body: undefined,
  });
}

/** The id of a kept answer. */
export const idOf = ({ headers }: Response): string =>
  headers.get("x-gateway-answer") ?? assert.fail("no answer id");

/** Reads a stream event by event. */
export class EventReader {
  readonly #reader: ReadableStreamDefaultReader<string>;
  #text = "";
  /** All that was read, without comments. */
  text = "";
  /** The id of the last event that was read. */
  lastId = "0";

  constructor(response: Response) {
    const body = response.body ?? assert.fail("no body");
    this.#reader = body.pipeThrough(new TextDecoderStream()).getReader();
  }

  /** The next event, with its blank line; null at the end of the stream. */
  async next(): Promise<string | null> {
    for (;;) {
      this.#text = this.#text.replace(/^(:[^\n]*\n+)+/, "");
      const end = this.#text.indexOf("\n\n") + 2;
      if (end > 1) {
        const event = this.#text.slice(0, end);
        this.#text = this.#text.slice(end);
        this.text += event;
        this.lastId = /^id: (\d+)$/m.exec(event)?.[1] ?? this.lastId;
        return event;
      }
      const { done, value } = await this.#reader.read();
      if (done) return null;
      this.#text += value;
    }
  }

  /** Reads everything. */
  async rest(): Promise<string> {
    while (await this.next() !== null);
    return this.text;
  }

  /** Closes the socket, as a client that disappears. */
  async cut(): Promise<void> {
    await this.#reader.cancel();
  }
}

/** The text of the first choice of a stream. */
export function contentOf(events: string): string {
  const deltas = [...events.matchAll(/^data: (\{.*\})$/gm)].map(([, json]) =>
    JSON.parse(json ?? "")
  );
  return deltas.map(({ choices }) => choices?.[0]?.delta?.content ?? "")
    .join("");
}
