/**
 * The public HTTP/1.1 server. It uses `node:http`, which notices at once when a client
 * disconnects, in every state of a request; `Deno.serve` (2.9.6) does not while a
 * handler is running. It does not support HTTP/2 and ignores upgrade requests.
 */
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:http";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines } from "@gateway/shared/process/deadlines";
import { SERVER_LIMITS } from "@gateway/shared/limits";
import type { GracefulServer } from "@gateway/shared/process/serve";
import { settlesWithin } from "@gateway/shared/process/serve";
import { startWorkSpan } from "@gateway/shared/process/tracing";

export interface Exchange {
  readonly method: string;
  /** Decoded, without a trailing slash and the query, which may contain secrets. */
  readonly path: string;
  /** What follows `?` in the address; it may contain secrets. */
  readonly query: string;
  /** By name in lower case; the values of a repeated field are joined by ", ". */
  readonly headers: ReadonlyMap<string, string>;
  readonly response: ServerResponse;
  /** The connection. It is destroyed and emits `close` as soon as the client disconnects. */
  readonly socket: Socket;
  /** Starts reading the body; a client that waits for `100 Continue` gets it. */
  openBody(): Readable;
}

export interface ServerOptions {
  hostname: string;
  port: number;
  /** Answers the request. If it rejects, the connection is closed. */
  handler: (exchange: Exchange) => Promise<void>;
  onError: (error: unknown) => void;
  deadlines: Deadlines;
  now: MonotonicNow;
  /** How long a client may take to read the rest of its answer. Default {@link SERVER_LIMITS}. */
  rest?: { readonly restMs: number; readonly restBytesPerMs: number };
}

const BAD_REQUEST = 400;

/** Starts listening. Rejects if the port is taken. */
export async function startServer(
  options: ServerOptions,
): Promise<GracefulServer> {
  /** The open connections, and how many requests are running on each. */
  const requests = new Map<Socket, number>();
  const stopping = new AbortController();
  let isClosing = false;
  const server = createServer({
    maxHeaderSize: SERVER_LIMITS.headBytesMax,
    headersTimeout: SERVER_LIMITS.headMs,
    requestTimeout: SERVER_LIMITS.requestMs,
    keepAliveTimeout: SERVER_LIMITS.idleMs,
    connectionsCheckingInterval: SERVER_LIMITS.checkMs,
    noDelay: true,
    requireHostHeader: false, // headOf() does.
  });
  const end = (socket: Socket) => void socket.end(() => socket.destroy());
  const change = (socket: Socket, by: number) => {
    const count = requests.get(socket);
    if (count === undefined) return;
    requests.set(socket, count + by);
    if (isClosing && count + by === 0) end(socket);
  };
  server.on("connection", (socket: Socket) => {
    requests.set(socket, 0);
    socket.setMaxListeners(0); // Each pipelined request adds one.
    socket.once("close", () => requests.delete(socket));
    // A client that closes its side has left: no HTTP client half-closes and waits.
    socket.once("end", () => socket.destroy());
    // node:http calls this after the last response of a connection.
    socket.destroySoon = () => isClosing ? end(socket) : linger(socket);
  });
  const accept =
    (awaitsContinue: boolean) =>
    (request: IncomingMessage, response: ServerResponse) => {
      const { socket } = request;
      change(socket, 1);
      response.once("close", () => change(socket, -1));
      void answer(request, response, awaitsContinue, options);
    };
  server.on("request", accept(false)).on("checkContinue", accept(true));
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
      for (const [socket, count] of requests) if (count === 0) end(socket);
      if (await settlesWithin(closed, graceMs)) return;
      stopping.abort(new Error("The server is shutting down"));
      if (await settlesWithin(closed, abortMs)) return;
      for (const socket of requests.keys()) socket.destroy();
      await closed;
    },
  };
}

/** Closing a connection with unread data would reset it and lose the end of the answer (RFC 9112 9.6). */
function linger(socket: Socket): void {
  socket.removeAllListeners("data");
  socket.end();
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), SERVER_LIMITS.lingerMs);
  socket.once("close", () => clearTimeout(timer));
}

/** Refers to nothing, unlike a function within `answer`: `node:http` keeps finished requests for a while. */
function ignore(): void {}

/** Answers one request. Never rejects. */
async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  awaitsContinue: boolean,
  options: ServerOptions,
): Promise<void> {
  const { handler, onError } = options;
  // Code that waits for a client is informed by the socket when it disconnects.
  response.on("error", ignore);
  request.on("error", ignore);
  watchRest(response, options);
  const head = headOf(request);
  if (head === null) {
    const headers = { "connection": "close", "content-length": "0" };
    response.writeHead(BAD_REQUEST, headers).end();
    return;
  }
  let isOpened = false;
  const openBody = () => {
    isOpened = true;
    if (awaitsContinue) response.writeContinue();
    return request;
  };
  const span = startWorkSpan(head.method, {
    kind: "server",
    parent: head.headers.get("traceparent"),
    attributes: { "http.request.method": head.method },
  });
  response.once("close", () => {
    const { statusCode: status } = response;
    const errorCode = status >= 500 ? String(status) : undefined;
    span.end({ "http.response.status_code": status }, errorCode);
  });
  try {
    const { socket } = request;
    const exchange = { ...head, response, socket, openBody };
    await span.run(() => handler(exchange));
  } catch (error) {
    onError(error);
    response.destroy();
  }
  // Deno does not discard an unread body, so the connection would hang.
  if (!isOpened) request.resume();
}

/** Closes the connection of a client that does not read the rest of its answer. */
function watchRest(
  response: ServerResponse,
  { deadlines, now, rest = SERVER_LIMITS }: ServerOptions,
): void {
  response.once("prefinish", () => {
    const { writableLength } = response;
    if (writableLength === 0) return;
    const deadline = {
      expiresAtMs: now() + rest.restMs + writableLength / rest.restBytesPerMs,
      expire: () => void response.socket?.destroy(),
    };
    deadlines.add(deadline);
    response.once("close", () => deadlines.remove(deadline));
  });
}

/** A valid `Host` header. Anything else could be taken for a path. */
const HOST = /^[\w.:[\]-]*$/;
/** The path and the query of a request target, perhaps after an origin. */
const TARGET = /^(?:https?:\/\/[^/?#]*)?([^?#]*)(?:\?([^#]*))?/i;

/** Reads the head of a request; null if HTTP/1.1 forbids it. */
function headOf(request: IncomingMessage) {
  const { rawHeaders, httpVersion, url = "/", method = "GET" } = request;
  const headers = new Map<string, string>();
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]?.toLowerCase() ?? "";
    const value = rawHeaders[at + 1] ?? "";
    const before = headers.get(name);
    headers.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  const encoding = headers.get("transfer-encoding") ?? "chunked";
  if (encoding.toLowerCase() !== "chunked") return null;
  const host = headers.get("host") ?? (httpVersion === "1.0" ? "" : null);
  if (host === null || !HOST.test(host)) return null;
  const [, path = "", query = ""] = TARGET.exec(url) ?? [];
  return { method, headers, query, path: decoded(path) };
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
