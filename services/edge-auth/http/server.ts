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
import type { Readable, Writable } from "node:stream";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines } from "@gateway/shared/process/deadlines";
import { SERVER_LIMITS } from "@gateway/shared/limits";
import {
  type GracefulServer,
  settlesWithin,
} from "@gateway/shared/process/serve";
import { startServerSpan } from "@gateway/shared/process/tracing";

/** The connection a request came on. It outlives the request. */
export interface ClientConnection {
  /** The peer, which is the proxy where there is one. */
  readonly address: string;
  readonly hasLeft: boolean;
  /** Calls back once when the client leaves, or soon if it has left. Returns what takes that back. */
  onLeft(callback: () => void): () => void;
}

/** What a handler gets beside the request, whose own body is empty. */
export interface Exchange {
  readonly connection: ClientConnection;
  /** The body, unread. Asks a client that waits for `100 Continue` to send it. */
  openBody(): Readable;
}

/** A response whose body is written while it is made. */
export class StreamedResponse extends Response {
  /** Called once with where the body goes; the head is sent with its first bytes. */
  readonly start: (out: Writable) => void;

  constructor(headers: Headers, start: (out: Writable) => void) {
    super(null, { status: 200, headers });
    this.start = start;
  }
}

export interface ServerOptions {
  hostname: string;
  /** 0 takes any free port. */
  port: number;
  handler: (
    request: Request,
    exchange: Exchange,
  ) => Response | Promise<Response>;
  /** Answers for a handler that threw, and hears of callbacks that did. */
  onError: (error: unknown) => Response;
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
  const { hostname, onError } = options;
  const connections = new Map<Socket, Connection>();
  const stopping = new AbortController();
  const server = createServer({
    maxHeaderSize: SERVER_LIMITS.headBytesMax,
    headersTimeout: SERVER_LIMITS.headMs,
    requestTimeout: SERVER_LIMITS.requestMs,
    keepAliveTimeout: SERVER_LIMITS.idleMs,
    connectionsCheckingInterval: SERVER_LIMITS.checkMs,
    noDelay: true,
    requireHostHeader: false, // requestOf() does.
  });
  server.on("connection", (socket: Socket) => {
    connections.set(socket, new Connection(socket, onError));
    socket.once("close", () => connections.delete(socket));
  });
  const accept = (
    incoming: IncomingMessage,
    out: ServerResponse,
    awaitsContinue: boolean,
  ) => {
    const connection = connections.get(incoming.socket);
    if (connection === undefined) return void out.destroy();
    connection.begin(out);
    void answer(incoming, out, { connection, awaitsContinue, ...options });
  };
  server.on("request", (incoming, out) => accept(incoming, out, false));
  server.on("checkContinue", (incoming, out) => accept(incoming, out, true));
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
      for (const connection of connections.values()) connection.endWhenIdle();
      if (await settlesWithin(closed, graceMs)) return;
      stopping.abort(new Error("The server is shutting down"));
      if (await settlesWithin(closed, lastWordMs)) return;
      for (const socket of connections.keys()) socket.destroy();
      await closed;
    },
  };
}

class Connection implements ClientConnection {
  readonly address: string;
  readonly #socket: Socket;
  readonly #onError: (error: unknown) => void;
  #callbacks: Set<() => void> | null = new Set();
  #running = 0;
  #isLast = false;

  constructor(socket: Socket, onError: (error: unknown) => void) {
    this.#socket = socket;
    this.#onError = onError;
    this.address = socket.remoteAddress ?? "";
    const leave = () => this.#leave();
    socket.once("end", leave);
    socket.once("close", leave);
    // Called by node:http after the last response of a connection.
    socket.destroySoon = () => this.#linger();
  }

  get hasLeft(): boolean {
    return this.#callbacks === null;
  }

  onLeft(callback: () => void): () => void {
    const callbacks = this.#callbacks;
    if (callbacks === null) {
      queueMicrotask(() => this.#call(callback));
      return () => {};
    }
    callbacks.add(callback);
    return () => void callbacks.delete(callback);
  }

  /** A request has come; `out` is its response. */
  begin(out: ServerResponse): void {
    this.#running += 1;
    out.once("close", () => {
      this.#running -= 1;
      if (this.#isLast) this.endWhenIdle();
    });
  }

  /** No more requests are taken. */
  endWhenIdle(): void {
    this.#isLast = true;
    if (this.#running === 0) this.#socket.end(() => this.#socket.destroy());
  }

  #leave(): void {
    const callbacks = this.#callbacks ?? [];
    this.#callbacks = null;
    for (const callback of callbacks) this.#call(callback);
  }

  /** Thrown on into an event of the socket, a fault would end the process. */
  #call(callback: () => void): void {
    try {
      callback();
    } catch (error) {
      this.#onError(error);
    }
  }

  /**
   * Ends the connection, and reads what the client still sends: one that is closed
   * with something unread takes the end of the answer with it (RFC 9112 9.6).
   */
  #linger(): void {
    const socket = this.#socket;
    if (this.#isLast) return void socket.end(() => socket.destroy());
    socket.removeAllListeners("data");
    socket.end();
    socket.resume();
    const timer = setTimeout(() => socket.destroy(), SERVER_LIMITS.lingerMs);
    socket.once("close", () => clearTimeout(timer));
  }
}

interface AnswerOptions extends ServerOptions {
  connection: ClientConnection;
  awaitsContinue: boolean;
}

/** Answers one request. Rejects never. */
async function answer(
  incoming: IncomingMessage,
  out: ServerResponse,
  options: AnswerOptions,
): Promise<void> {
  const { connection, awaitsContinue, handler, onError } = options;
  // Whoever writes to a client that has left hears of it by `onLeft`.
  out.on("error", () => {});
  incoming.on("error", () => {});
  watchRest(out, options);
  const request = requestOf(incoming);
  if (request === null) {
    const headers = { "connection": "close", "content-length": "0" };
    out.writeHead(BAD_REQUEST, headers).end();
    return;
  }
  let isOpened = false;
  const openBody = () => {
    isOpened = true;
    if (awaitsContinue) out.writeContinue();
    return incoming;
  };
  const span = startServerSpan(
    request.method,
    request.headers.get("traceparent") ?? undefined,
  );
  out.once("close", () => span.end(out.statusCode));
  try {
    const response = await span.run(() =>
      handler(request, { connection, openBody })
    );
    await send(response, out);
  } catch (error) {
    const response = onError(error);
    if (out.headersSent) out.destroy();
    else await send(response, out).catch(() => out.destroy());
  }
  // Deno does not drop a body that nobody reads: the connection would stand still.
  if (!isOpened) incoming.resume();
}

/** Does not wait for ever for a client that takes nothing of the rest of its answer. */
function watchRest(
  out: ServerResponse,
  { deadlines, now, rest = SERVER_LIMITS }: ServerOptions,
): void {
  out.once("prefinish", () => {
    if (out.writableLength === 0) return;
    const restMs = rest.restMs + out.writableLength / rest.restBytesPerMs;
    const deadline = {
      expiresAtMs: now() + restMs,
      expire: () => void out.socket?.destroy(),
    };
    deadlines.add(deadline);
    out.once("close", () => deadlines.remove(deadline));
  });
}

async function send(response: Response, out: ServerResponse): Promise<void> {
  if (out.destroyed) return;
  const headers = Object.fromEntries(response.headers);
  if (response instanceof StreamedResponse) {
    out.writeHead(response.status, headers);
    response.start(out);
    return;
  }
  if (response.body === null) {
    out.writeHead(response.status, headers).end();
    return;
  }
  const bytes = await response.bytes();
  headers["content-length"] ??= String(bytes.length);
  out.writeHead(response.status, headers).end(bytes);
}

/** Of a `Host` header. Anything else would be taken for a path. */
const HOST = /^[\w.:[\]-]*$/;

/** The request without its body; null for one that HTTP/1.1 forbids. */
function requestOf(incoming: IncomingMessage): Request | null {
  const { rawHeaders, httpVersion, url = "/", method = "GET" } = incoming;
  const headers = new Headers();
  for (let at = 0; at < rawHeaders.length; at += 2) {
    headers.append(rawHeaders[at] ?? "", rawHeaders[at + 1] ?? "");
  }
  const encoding = headers.get("transfer-encoding") ?? "chunked";
  const host = headers.get("host") ?? (httpVersion === "1.0" ? "" : null);
  if (host === null || !HOST.test(host)) return null;
  if (encoding.toLowerCase() !== "chunked") return null;
  const target = url.startsWith("/")
    ? `http://${host || "localhost"}${url}`
    : url;
  return new IncomingRequest(headers, method, target);
}

/** `Request` knows no `TRACE`, and would resolve the dots of a path. */
class IncomingRequest extends Request {
  readonly #method: string;
  readonly #url: string;

  constructor(headers: Headers, method: string, url: string) {
    super("http://localhost/", { headers });
    this.#method = method;
    this.#url = url;
  }

  override get method(): string {
    return this.#method;
  }

  override get url(): string {
    return this.#url;
  }
}
