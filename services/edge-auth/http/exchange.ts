/** A request and its response, as the server hands them to the handlers. */
import { type IncomingHttpHeaders, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import type { Envelope } from "@gateway/shared/forward/endpoints";
import { BODY_PIECES, SERVER_LIMITS } from "@gateway/shared/limits";
import type { Turns } from "./turns.ts";

/** The header fields of a response, by name. */
export type HeaderFields = Readonly<Record<string, string>>;

/** The status of a request whose client disconnected first, as nginx has it. */
export const CLIENT_CLOSED_REQUEST = 499;

/** Tells clients how long they may reuse a connection. */
const KEEP_ALIVE = `timeout=${SERVER_LIMITS.idleMs / 1_000}`;

/** A response of this server. */
export class ApiResponse extends ServerResponse {
  /** Headers that every answer of it has. */
  readonly fixedHeaders: Record<string, string> = {};
  /** The form of its errors. */
  envelope: Envelope = "openai";

  /**
   * Sends all headers at once, since `node:http` takes three times as long for each one
   * that was set before.
   */
  sendHead(status: number, headers: HeaderFields): this {
    const all = { ...this.fixedHeaders, ...headers };
    if (this.shouldKeepAlive && all.connection === undefined) {
      all["keep-alive"] = KEEP_ALIVE;
    }
    return this.writeHead(status, all);
  }

  /** An answer that breaks off ends after the bytes that were written so far. */
  override destroy(error?: Error): this {
    const { socket, headersSent } = this;
    if (headersSent && socket?.writable) socket.destroySoon();
    else super.destroy(error);
    return this;
  }
}

/** A request that is being answered. */
export interface Exchange {
  readonly method: string;
  /** Decoded, without a trailing slash and the query, which may contain secrets. */
  readonly path: string;
  /** What follows `?` in the address; it may contain secrets. */
  readonly query: string;
  /**
   * Header fields by name in lower case; the values of a repeated one are joined by ",
   * ".
   */
  readonly headers: IncomingHttpHeaders;
  readonly response: ApiResponse;
  /** The connection. It is destroyed as soon as the client disconnects. */
  readonly socket: Socket;
  /**
   * Called once, the newest first, when the response was sent or the client has
   * disconnected.
   */
  readonly onClose: (() => void)[];
  /** Large bodies are read and parsed in turns. */
  readonly turns: Pick<Turns, "took" | "next">;
  /** Starts reading the body; a client that waits for `100 Continue` gets it. */
  openBody(): Readable;
}

/** What is needed to read the body of a request. */
export type BodyExchange = Pick<Exchange, "headers" | "openBody" | "turns">;

/**
 * Drops the rest of a body. If it comes in tiny pieces, that takes too long, and the
 * connection is closed.
 */
export function discard(body: Readable, turns: Pick<Turns, "took">): void {
  let left = BODY_PIECES.free;
  body.on("data", ({ length }: Uint8Array) => {
    left += length / BODY_PIECES.bytesMin - 1;
    if (left < 0) body.destroy();
    else turns.took(body, length);
  }).resume();
}
