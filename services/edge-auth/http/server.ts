/**
 * The public HTTP/1.1 server, on `node:http`: it notices at once when a client
 * leaves, in every state of a request, which `Deno.serve` does not do while an
 * answer is awaited (2.9.6). It speaks no HTTP/2 and ignores offers of an upgrade.
 */
import {
  createServer,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines } from "@gateway/shared/process/deadlines";
import { SERVER_LIMITS } from "@gateway/shared/limits";
import {
  type GracefulServer,
  settlesWithin,
} from "@gateway/shared/process/serve";
import { startServerSpan } from "@gateway/shared/process/tracing";

/** A request, and where its answer goes. */
export interface Exchange {
  readonly method: string;
  /** Decoded, and without the query, which may hold secrets. */
  readonly path: string;
  /** The host the request is for, in lower case. */
  readonly host: string;
  /** By name in lower case; the values of a repeated field are joined by ", ". */
  readonly headers: ReadonlyMap<string, string>;
  readonly response: ServerResponse;
  /** The client, or the proxy before it. Is destroyed, and says `close`, as soon as that leaves. */
  readonly socket: Socket;
  /** The body, unread. Asks a client that waits for `100 Continue` to send it. */
  openBody(): Readable;
}

export interface ServerOptions {
  hostname: string;
  /** 0 takes any free port. */
  port: number;
  /** Answers the request. Where it rejects, the connection is closed. */
  handler: (exchange: Exchange) => Promise<void>;
  /** Hears of handlers that rejected. */
  onError: (error: unknown) => void;
  deadlines: Deadlines;
  now: MonotonicNow;
  /** What a client has for the rest of its answer. Default {@link SERVER_LIMITS}. */
  rest?: { readonly restMs: number; readonly restBytesPerMs: number };
}

const BAD_REQUEST = 400;

/** Starts to listen. Rejects when the port is taken. */
export async function startServer(
  options: ServerOptions,
): Promise<GracefulServer> {
  const { hostname } = options;
  /** Open connections, and how many requests each of them has. */
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
    socket.once("close", () => requests.delete(socket));
    // Who stops sending has left: no client of HTTP does so and waits.
    socket.once("end", () => socket.destroy());
    // Called by node:http after the last response of a connection.
    socket.destroySoon = () => isClosing ? end(socket) : linger(socket);
  });
  const accept = (
    request: IncomingMessage,
    response: ServerResponse,
    awaitsContinue: boolean,
  ) => {
    const { socket } = request;
    change(socket, 1);
    response.once("close", () => change(socket, -1));
    void answer(request, response, { awaitsContinue, ...options });
  };
  server.on("request", (request, response) => accept(request, response, false));
  server.on(
    "checkContinue",
    (request, response) => accept(request, response, true),
  );
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port, hostname, resolve);
  });
  const address = server.address();
  if (address === null || typeof address === "string") {
    throw new Error("The server has no port");
  }
  return {
    hostname,
    port: address.port,
    stopping: stopping.signal,
    async stop({ graceMs, lastWordMs }) {
      const closed = new Promise<void>((resolve) =>
        server.close(() => resolve())
      );
      isClosing = true;
      for (const [socket, count] of requests) if (count === 0) end(socket);
      if (await settlesWithin(closed, graceMs)) return;
      stopping.abort(new Error("The server is shutting down"));
      if (await settlesWithin(closed, lastWordMs)) return;
      for (const socket of requests.keys()) socket.destroy();
      await closed;
    },
  };
}

/**
 * Ends the connection, and reads what the client still sends: one that is closed
 * with something unread takes the end of the answer with it (RFC 9112 9.6).
 */
function linger(socket: Socket): void {
  socket.removeAllListeners("data");
  socket.end();
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), SERVER_LIMITS.lingerMs);
  socket.once("close", () => clearTimeout(timer));
}

/** Answers one request. Rejects never. */
async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  options: ServerOptions & { awaitsContinue: boolean },
): Promise<void> {
  const { awaitsContinue, handler, onError } = options;
  // Whoever waits for a client that has left hears of it from the socket.
  response.on("error", () => {});
  request.on("error", () => {});
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
  const span = startServerSpan(head.method, head.headers.get("traceparent"));
  response.once("close", () => span.end(response.statusCode));
  try {
    const { socket } = request;
    await span.run(() => handler({ ...head, response, socket, openBody }));
  } catch (error) {
    onError(error);
    response.destroy();
  }
  // Deno does not drop a body that nobody reads: the connection would stand still.
  if (!isOpened) request.resume();
}

/** Does not wait for ever for a client that takes nothing of the rest of its answer. */
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

/** Of a `Host` header. Anything else would be taken for a path. */
const HOST = /^[\w.:[\]-]*$/;
/** Of a target that is a whole URL. */
const ORIGIN = /^https?:\/\/([^/?#]*)/i;

type Head = Pick<Exchange, "method" | "path" | "host" | "headers">;

/** What is asked for; null for a request that HTTP/1.1 forbids. */
function headOf(request: IncomingMessage): Head | null {
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
  const named = headers.get("host") ?? (httpVersion === "1.0" ? "" : null);
  if (named === null || !HOST.test(named)) return null;
  const origin = ORIGIN.exec(url);
  return {
    method,
    headers,
    path: pathOf(url.slice(origin?.[0].length ?? 0)),
    host: (origin?.[1] ?? named).toLowerCase(),
  };
}

/** The path of a target, decoded where it can be. */
function pathOf(target: string): string {
  const [path = ""] = target.split(/[?#]/, 1);
  if (!path.includes("%")) return path;
  try {
    return decodeURIComponent(path);
  } catch {
    return path; // Not UTF-8, so it is the path of nothing.
  }
}
