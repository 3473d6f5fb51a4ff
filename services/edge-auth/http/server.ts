/**
 * The public HTTP/1.1 server. It uses `node:http`, which notices at once when a client
 * disconnects, in every state of a request; `Deno.serve` (2.9.6) does not while a
 * handler is running. It does not support HTTP/2 and ignores upgrade requests.
 */
import { once } from "node:events";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  ServerResponse,
} from "node:http";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import { BODY_PIECES, SERVER_LIMITS } from "@gateway/shared/limits";
import {
  type GracefulServer,
  settlesWithin,
} from "@gateway/shared/process/serve";
import { dropSpanOf, startWorkSpan } from "@gateway/shared/process/tracing";
import { CLIENT_CLOSED_REQUEST, type HeaderFields } from "./responses.ts";

export class ApiResponse extends ServerResponse {
  /** Headers that it has, whatever is sent. */
  readonly fixedHeaders: Record<string, string> = {};

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

  /** An answer that breaks off ends with what has been written of it. */
  override destroy(error?: Error): this {
    const { socket, headersSent } = this;
    if (headersSent && socket?.writable) socket.destroySoon();
    else super.destroy(error);
    return this;
  }
}

export interface Exchange {
  readonly method: string;
  /** Decoded, without a trailing slash and the query, which may contain secrets. */
  readonly path: string;
  /** What follows `?` in the address; it may contain secrets. */
  readonly query: string;
  /** By name in lower case; the values of a repeated field are joined by ", ". */
  readonly headers: IncomingHttpHeaders;
  readonly response: ApiResponse;
  /** The connection. It is destroyed as soon as the client disconnects. */
  readonly socket: Socket;
  /**
   * Called once, the newest first, when the response was sent or the client has
   * disconnected.
   */
  readonly onClose: (() => void)[];
  /** Starts reading the body; a client that waits for `100 Continue` gets it. */
  openBody(): Readable;
}

export interface ServerOptions {
  hostname: string;
  port: number;
  /** Answers the request. If it rejects, the connection is closed. */
  handler: (exchange: Exchange) => Promise<void>;
  onError: (error: unknown) => void;
  /** Default {@link SERVER_LIMITS}. */
  limits?: Record<keyof typeof SERVER_LIMITS, number>;
}

/** A request that is being answered. */
type Call = Pick<Exchange, "response" | "onClose">;

interface Connection {
  readonly calls: Set<Call>;
  /**
   * It is closed after so many checks. Counted, not timed, because requests wait unread
   * during a stall.
   */
  checksLeft: number | null;
}

const BAD_REQUEST = 400;
/** Tells clients how long they may reuse a connection. */
const KEEP_ALIVE = `timeout=${SERVER_LIMITS.idleMs / 1_000}`;

/** Starts listening. Rejects if the port is taken. */
export async function startServer(
  options: ServerOptions,
): Promise<GracefulServer> {
  const { limits = SERVER_LIMITS } = options;
  const connections = new Map<Socket, Connection>();
  const stopping = new AbortController();
  let isClosing = false;
  const server = createServer({
    ServerResponse: ApiResponse,
    maxHeaderSize: limits.headBytesMax,
    headersTimeout: limits.headMs,
    requestTimeout: limits.requestMs,
    keepAliveTimeout: 0, // `check` does it: `node:http` sets a timer for each request.
    connectionsCheckingInterval: limits.checkMs,
    noDelay: true,
    requireHostHeader: false, // headOf() does.
    joinDuplicateHeaders: true,
  });
  const end = (socket: Socket) => void socket.end(() => socket.destroy());
  /**
   * Closes idle connections, and those of clients that do not read the rest of an
   * answer.
   */
  const check = () => {
    for (const [socket, connection] of connections) {
      const [call] = connection.calls;
      const { writableEnded = true, writableLength = 0 } = call?.response ?? {};
      if (!writableEnded) continue;
      const mostMs = call === undefined
        ? limits.idleMs
        : limits.restMs + writableLength / limits.restBytesPerMs;
      connection.checksLeft ??= mostMs / limits.checkMs;
      if ((connection.checksLeft -= 1) >= 0) continue;
      if (call === undefined) end(socket);
      else socket.destroy();
    }
  };
  const checks = setInterval(check, limits.checkMs);
  server.on("close", () => clearInterval(checks));
  const close = (connection: Connection, call: Call) => {
    if (!connection.calls.delete(call)) return;
    connection.checksLeft = null;
    const { response, onClose } = call;
    if (!response.headersSent) response.statusCode = CLIENT_CLOSED_REQUEST;
    while (onClose.length > 0) onClose.pop()?.();
  };
  server.on("connection", (socket: Socket) => {
    const connection: Connection = { calls: new Set(), checksLeft: null };
    connections.set(socket, connection);
    socket.once("close", () => {
      connections.delete(socket);
      for (const call of connection.calls) close(connection, call);
    });
    // A client that closes its side has left: no HTTP client half-closes and waits.
    socket.once("end", () => socket.destroy());
    // node:http calls this after the last response of a connection.
    socket.destroySoon = () => isClosing ? end(socket) : linger(socket);
  });
  const accept =
    (awaitsContinue: boolean) =>
    (request: IncomingMessage, response: ApiResponse) => {
      const { socket } = request;
      const connection = connections.get(socket);
      if (connection === undefined) return; // It has closed.
      const { calls } = connection;
      if (calls.size >= limits.callsMax) return void socket.destroy();
      const call: Call = { response, onClose: [] };
      calls.add(call);
      connection.checksLeft = null;
      response.once("close", () => {
        close(connection, call);
        if (isClosing && calls.size === 0) end(socket);
      });
      void answer(request, call, awaitsContinue, options);
    };
  server.on("request", accept(false)).on("checkContinue", accept(true));
  server.on("checkExpectation", accept(false)); // Ignored (RFC 9110 10.1.1).
  await once(server.listen(options.port, options.hostname), "listening");
  const address = server.address();
  if (address === null || typeof address === "string") {
    throw new Error("The server has no port");
  }
  return {
    port: address.port,
    stopping: stopping.signal,
    async stop({ graceMs, abortMs }) {
      const closed = once(server.close(), "close");
      isClosing = true;
      for (const [socket, { calls }] of connections) {
        if (calls.size === 0) end(socket);
      }
      if (await settlesWithin(closed, graceMs)) return;
      stopping.abort(new Error("The server is shutting down"));
      if (await settlesWithin(closed, abortMs)) return;
      for (const socket of connections.keys()) socket.destroy();
      await closed;
    },
  };
}

/**
 * Closing a connection with unread data would reset it and lose the end of the answer
 * (RFC 9112 9.6).
 */
function linger(socket: Socket): void {
  socket.removeAllListeners("data");
  socket.end();
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), SERVER_LIMITS.lingerMs);
  socket.once("close", () => clearTimeout(timer));
}

/**
 * Refers to nothing, unlike a function within `answer`: `node:http` keeps finished
 * requests for a while.
 */
function ignore(): void {}

/** Answers one request. Never rejects. */
async function answer(
  request: IncomingMessage,
  { response, onClose }: Call,
  awaitsContinue: boolean,
  { handler, onError }: ServerOptions,
): Promise<void> {
  // A client that disconnects is noticed by its socket.
  response.on("error", ignore);
  request.on("error", ignore);
  const head = headOf(request);
  if (head === null) {
    const headers = { "connection": "close", "content-length": "0" };
    return void response.sendHead(BAD_REQUEST, headers).end();
  }
  let isOpened = false;
  const openBody = () => {
    isOpened = true;
    if (awaitsContinue) response.writeContinue();
    return request;
  };
  dropSpanOf(response);
  const span = startWorkSpan(head.method, {
    kind: "SERVER",
    parent: head.headers.traceparent?.toString(),
    attributes: { "http.request.method": head.method, "url.path": head.path },
  });
  onClose.push(() => {
    const { statusCode: status } = response;
    const errorCode = status >= 500 ? String(status) : undefined;
    span.end({ "http.response.status_code": status }, errorCode);
  });
  try {
    const exchange = { ...head, response, onClose, openBody };
    await span.run(() => handler(exchange));
  } catch (error) {
    onError(error);
    response.destroy();
  }
  // Deno does not discard an unread body, so the connection would hang.
  if (!isOpened) discard(request);
}

/**
 * Drops the rest of a body. If it comes in tiny pieces, that takes too long, and the
 * connection is closed.
 */
export function discard(body: Readable): void {
  let left = BODY_PIECES.free;
  body.on("data", ({ length }: Uint8Array) => {
    if ((left += length / BODY_PIECES.bytesMin - 1) < 0) body.destroy();
  }).resume();
}

/** A valid `Host` header. Anything else could be taken for a path. */
const HOST = /^[\w.:[\]-]*$/;
/** The path and the query of a request target, perhaps after an origin. */
const TARGET = /^(?:https?:\/\/[^/?#]*)?([^?#]*)(?:\?([^#]*))?/i;

/** Reads the head of a request; null if HTTP/1.1 forbids it. */
function headOf(request: IncomingMessage) {
  const { headers, httpVersion, socket, url = "/", method = "GET" } = request;
  const encoding = headers["transfer-encoding"] ?? "chunked";
  if (encoding.toLowerCase() !== "chunked") return null;
  const host = headers.host ?? (httpVersion === "1.0" ? "" : null);
  if (host === null || !HOST.test(host)) return null;
  const [, path = "", query = ""] = TARGET.exec(url) ?? [];
  return { method, headers, socket, query, path: decoded(path) };
}

/** A path, decoded if possible, without a trailing slash. */
function decoded(given: string): string {
  const isSlashed = given.length > 1 && given.endsWith("/");
  const path = isSlashed ? given.slice(0, -1) : given;
  if (!path.includes("%")) return path;
  try {
    return decodeURIComponent(path);
  } catch {
    return path; // Not UTF-8, so it matches no route.
  }
}
