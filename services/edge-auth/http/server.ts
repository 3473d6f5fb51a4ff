/**
 * The public HTTP/1.1 server. It uses `node:http`, which notices at once when a client
 * disconnects, in every state of a request; `Deno.serve` (2.9.6) does not while a
 * handler is running. It does not support HTTP/2 and ignores upgrade requests.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { SERVER_LIMITS } from "@gateway/shared/limits";
import {
  type GracefulServer,
  settlesWithin,
} from "@gateway/shared/process/lifecycle/serve";
import { dropSpanOf, startWorkSpan } from "@gateway/shared/process/tracing";
import {
  ApiResponse,
  CLIENT_CLOSED_REQUEST,
  discard,
  type Exchange,
} from "./exchange.ts";
import { Turns } from "./turns.ts";

/** Where the server listens, and who answers. */
export interface ServerOptions {
  hostname: string;
  /** 0: any free port. */
  port: number;
  /** Answers the request. If it rejects, the connection is closed. */
  handler: (exchange: Exchange) => Promise<void>;
  /** A handler has rejected: a fault of ours. */
  onError: (error: unknown) => void;
  /** Default {@link SERVER_LIMITS}. */
  limits?: ServerBounds;
}

type ServerBounds = Record<keyof typeof SERVER_LIMITS, number>;

/** The part of an exchange that outlives its handler. */
type Pending = Pick<Exchange, "response" | "onClose">;

/** What is needed to answer a request. */
interface Opening extends Pending, Pick<Exchange, "turns"> {
  readonly awaitsContinue: boolean;
}

interface Connection {
  /** The requests that are being answered, the oldest first. No `Set`, see `LiveMap`. */
  readonly pending: Pending[];
  /**
   * It is closed after this many checks; null: not counted yet. Counted, not timed,
   * because requests wait unread during a stall.
   */
  checksLeft: number | null;
}

const BAD_REQUEST = 400;

/** Starts listening. Rejects if the port is taken. */
export async function startServer(
  options: ServerOptions,
): Promise<GracefulServer> {
  const { limits = SERVER_LIMITS } = options;
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
  const turns = new Turns();
  const connections = new Connections(limits, turns);
  const checks = setInterval(() => connections.check(), limits.checkMs);
  server.on("close", () => {
    clearInterval(checks);
    turns.close();
  });
  server.on("connection", (socket: Socket) => connections.add(socket));
  const accept =
    (manner: { awaitsContinue: boolean }) =>
    (request: IncomingMessage, response: ApiResponse) => {
      const pending = connections.begin(request.socket, response);
      if (pending === null) return;
      void answer(request, { ...pending, ...manner, turns }, options);
    };
  const acceptAtOnce = accept({ awaitsContinue: false });
  server.on("request", acceptAtOnce);
  server.on("checkContinue", accept({ awaitsContinue: true }));
  server.on("checkExpectation", acceptAtOnce); // Ignored (RFC 9110 10.1.1).
  await once(server.listen(options.port, options.hostname), "listening");
  const address = server.address();
  if (address === null || typeof address === "string") {
    throw new Error("The server has no port");
  }
  const stopping = new AbortController();
  return {
    port: address.port,
    stopping: stopping.signal,
    async stop({ graceMs, abortMs }) {
      const closed = once(server.close(), "close");
      // Deno (2.9.6) destroys a connection at the end of an answer if this is false,
      // and with it the next request; `connections` lets that be answered.
      Object.defineProperty(server, "listening", { value: true });
      connections.close();
      if (await settlesWithin(closed, graceMs)) return;
      stopping.abort(new Error("The server is shutting down"));
      if (await settlesWithin(closed, abortMs)) return;
      connections.destroy();
      await closed;
    },
  };
}

/** The connections of a server, and the requests on each. */
class Connections {
  readonly #bounds: ServerBounds;
  readonly #turns: Turns;
  readonly #connections = new Map<Socket, Connection>();
  #isClosing = false;

  constructor(bounds: ServerBounds, turns: Turns) {
    this.#bounds = bounds;
    this.#turns = turns;
  }

  add(socket: Socket): void {
    const connection: Connection = { pending: [], checksLeft: null };
    this.#connections.set(socket, connection);
    socket.once("close", () => {
      this.#connections.delete(socket);
      for (const each of [...connection.pending]) this.#end(connection, each);
    });
    // A client that closes its side has left: no HTTP client half-closes and waits.
    socket.once("end", () => socket.destroy());
    // node:http calls this after the last response of a connection.
    socket.destroySoon = () =>
      this.#isClosing ? hangUp(socket) : linger(socket, this.#turns);
  }

  /** A request has arrived. Null if it cannot be answered. */
  begin(socket: Socket, response: ApiResponse): Pending | null {
    const connection = this.#connections.get(socket);
    if (connection === undefined) return null; // It has closed.
    if (connection.pending.length >= this.#bounds.callsMax) {
      socket.destroy();
      return null;
    }
    const pending: Pending = { response, onClose: [] };
    connection.pending.push(pending);
    connection.checksLeft = null;
    if (this.#isClosing) response.shouldKeepAlive = false;
    response.once("close", () => {
      this.#end(connection, pending);
      if (this.#isClosing && connection.pending.length === 0) {
        this.#awaitLast(socket, connection);
      }
    });
    return pending;
  }

  /**
   * Closes a connection whose answer began before the server stopped, so that its head
   * promised more: a client may be sending its next request, which would be lost. One
   * that comes in time is answered, as the last.
   */
  #awaitLast(socket: Socket, { pending }: Connection): void {
    if (socket.destroyed) return;
    const timer = setTimeout(() => {
      if (pending.length === 0) hangUp(socket);
    }, this.#bounds.lastMs);
    socket.once("close", () => clearTimeout(timer));
  }

  /**
   * Closes idle connections, and those of clients that do not read the rest of an
   * answer.
   */
  check(): void {
    const { idleMs, restMs, restBytesPerMs, checkMs } = this.#bounds;
    for (const [socket, connection] of this.#connections) {
      const [oldest] = connection.pending;
      const { writableEnded = true, writableLength = 0 } = oldest?.response ??
        {};
      if (!writableEnded) continue;
      const mostMs = oldest === undefined
        ? idleMs
        : restMs + writableLength / restBytesPerMs;
      connection.checksLeft = (connection.checksLeft ?? mostMs / checkMs) - 1;
      if (connection.checksLeft >= 0) continue;
      if (oldest === undefined) hangUp(socket);
      else socket.destroy();
    }
  }

  /** Closes idle connections now, and the others after their answers. */
  close(): void {
    this.#isClosing = true;
    for (const [socket, { pending }] of this.#connections) {
      for (const { response } of pending) {
        if (!response.headersSent) response.shouldKeepAlive = false;
      }
      if (pending.length === 0) hangUp(socket);
    }
  }

  /** Cuts all connections. */
  destroy(): void {
    for (const socket of this.#connections.keys()) socket.destroy();
  }

  #end(connection: Connection, pending: Pending): void {
    const place = connection.pending.indexOf(pending);
    if (place === -1) return;
    connection.pending.splice(place, 1);
    connection.checksLeft = null;
    const { response, onClose } = pending;
    if (!response.headersSent) response.statusCode = CLIENT_CLOSED_REQUEST;
    while (onClose.length > 0) onClose.pop()?.();
  }
}

/** Closes a connection once all was sent. */
function hangUp(socket: Socket): void {
  socket.end(() => socket.destroy());
}

/**
 * Closing a connection with unread data would reset it and lose the end of the answer
 * (RFC 9112 9.6).
 */
function linger(socket: Socket, turns: Turns): void {
  socket.removeAllListeners("data");
  socket.on("data", ({ length }: Uint8Array) => turns.took(socket, length));
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
  { response, onClose, turns, awaitsContinue }: Opening,
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
    describe: () => ({
      "http.request.method": head.method,
      "url.path": head.path,
    }),
  });
  onClose.push(() => {
    const { statusCode: status } = response;
    const errorCode = status >= 500 ? String(status) : undefined;
    span.end(() => ({ "http.response.status_code": status }), errorCode);
  });
  try {
    const exchange = { ...head, response, onClose, openBody, turns };
    await span.run(() => handler(exchange));
  } catch (error) {
    onError(error);
    response.destroy();
  }
  // Deno does not discard an unread body, so the connection would hang.
  if (!isOpened) discard(request, turns);
}

/**
 * A valid `Host` header: a name or an address, IPv6 with its zone (RFC 6874). Anything
 * else could be taken for a path.
 */
const HOST = /^(?:[\w.:-]*|\[[\w.:-]+(?:%(?:25)?[\w.~-]+)?\](?::\d*)?)$/;
/** The path and the query of a request target, perhaps after an origin. */
const TARGET = /^(?:https?:\/\/[^/?#]*)?([^?#]*)(?:\?([^#]*))?/i;

type Head = Pick<Exchange, "method" | "path" | "query" | "headers" | "socket">;

/** Reads the head of a request; null if HTTP/1.1 forbids it. */
function headOf(request: IncomingMessage): Head | null {
  const { headers, httpVersion, socket, url = "/", method = "GET" } = request;
  const encoding = headers["transfer-encoding"] ?? "chunked";
  if (encoding.toLowerCase() !== "chunked") return null;
  const host = headers.host ?? (httpVersion === "1.0" ? "" : null);
  if (host === null || !HOST.test(host)) return null;
  const [, path = "", query = ""] = TARGET.exec(url) ?? [];
  return { method, headers, socket, query, path: decodePath(path) };
}

/** A path, decoded if possible, without a trailing slash. */
function decodePath(encodedPath: string): string {
  const isSlashed = encodedPath.length > 1 && encodedPath.endsWith("/");
  const path = isSlashed ? encodedPath.slice(0, -1) : encodedPath;
  if (!path.includes("%")) return path;
  try {
    return decodeURIComponent(path);
  } catch {
    return path; // Not UTF-8, so it matches no route.
  }
}
