/**
 * An HTTP/1.1 client of one server, made for streams: a response is read only as
 * fast as its reader asks, through one buffer, and the end of the attempt closes
 * the connection at once. The clients of Deno and npm cost two to three times as
 * much CPU per read.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { AttemptDeadlines } from "./attempt_deadlines.ts";
import { invalidAnswer, truncatedAnswer, UpstreamError } from "./errors.ts";
import {
  type BodyDecoder,
  createBodyDecoder,
  findHeadEnd,
  parseResponseHead,
  type ResponseHead,
} from "./http_framing.ts";

/** Size of the read buffer of a connection, and with it the bound of a response head. */
const READ_BUFFER_BYTES = 16 * 1024;
/** Idle connections kept. One per request that may run at once would be the most that helps. */
const IDLE_CONNECTIONS_MAX = 256;
/** Idle connections are closed after this long: under what load balancers allow, which is 60 s and more. */
const IDLE_MS = 30_000;
/** What may follow the part of a body that mattered, before the connection is given up. */
const DRAIN_BYTES_MAX = 64 * 1024;
/** Interim responses skipped before the final one. */
const INTERIM_RESPONSES_MAX = 16;
const SWITCHING_PROTOCOLS = 101;
const REQUEST_TIMEOUT = 408;
/** The one protocol we speak, so that a server that offers HTTP/2 does not choose it. */
const ALPN_PROTOCOL = "http/1.1";

/** A byte stream in both directions. `Deno.Conn` is one. */
export type ByteConnection = Pick<Deno.Conn, "read" | "write" | "close">;

/** Opens a connection to one place; rejects, with nothing left open, when the signal aborts. */
export type Connect = (signal: AbortSignal) => Promise<ByteConnection>;

/** Where {@link createConnect} connects to. */
export interface ConnectOptions {
  hostname: string;
  port: number;
  isTls: boolean;
  /** PEM certificates trusted beside the usual ones. */
  caCerts?: string[];
}

/**
 * Makes the function that connects to a model server. TCP_NODELAY is set before
 * the first byte: without it a small request behind an unacknowledged one waits
 * for the peer's delayed acknowledgement, about 40 ms.
 */
export function createConnect(options: ConnectOptions): Connect {
  const { hostname, port, isTls } = options;
  return async (signal) => {
    const tcp = await Deno.connect({ hostname, port, signal });
    try {
      signal.throwIfAborted();
      tcp.setNoDelay(true);
      tcp.setKeepAlive(true);
    } catch (error) {
      tcp.close();
      throw error;
    }
    return isTls ? await handshake(tcp, options, signal) : tcp;
  };
}

async function handshake(
  tcp: Deno.TcpConn,
  { hostname, caCerts }: ConnectOptions,
  signal: AbortSignal,
): Promise<ByteConnection> {
  const tls = await Deno.startTls(tcp, {
    hostname,
    alpnProtocols: [ALPN_PROTOCOL],
    ...(caCerts === undefined ? {} : { caCerts }),
  });
  const onAbort = () => tls.close();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    signal.throwIfAborted();
    const { alpnProtocol } = await tls.handshake();
    if (alpnProtocol !== null && alpnProtocol !== ALPN_PROTOCOL) {
      throw new Error(`Server insists on the protocol ${alpnProtocol}`);
    }
    return tls;
  } catch (error) {
    if (!signal.aborted) tls.close();
    throw error;
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/**
 * A connection with its read buffer. While it is idle a read is in flight, so
 * that its end is noticed when it happens and not by the next request; that read
 * then becomes the first one of the next response.
 */
class Connection {
  /** Bytes of the last read. Overwritten by the next one. */
  readonly buffer = new Uint8Array(READ_BUFFER_BYTES);
  /** It has carried a request before, so the server may have hung up in the meantime. */
  isReused = false;
  isOpen = true;
  idleSinceMs = 0;
  readonly #raw: ByteConnection;
  #idleRead: Promise<number | null> | null = null;
  #isIdle = false;

  constructor(raw: ByteConnection) {
    this.#raw = raw;
  }

  /** Reads into the buffer from `at` on; null at the end of the stream. */
  read(at: number): Promise<number | null> {
    const reading = this.#idleRead;
    this.#idleRead = null;
    return reading ??
      this.#raw.read(at === 0 ? this.buffer : this.buffer.subarray(at));
  }

  /** Writes all of `bytes`; `onProgress` is told when it takes more than one step. */
  async write(bytes: Uint8Array, onProgress: () => void): Promise<void> {
    let written = await this.#raw.write(bytes);
    while (written < bytes.length) {
      onProgress();
      written += await this.#raw.write(bytes.subarray(written));
    }
  }

  /** Starts the idle read. `onEvent` is called if it ends before {@link wake}. */
  sleep(nowMs: number, onEvent: () => void): void {
    this.#isIdle = this.isReused = true;
    this.idleSinceMs = nowMs;
    this.#idleRead = this.#raw.read(this.buffer);
    const notice = () => {
      if (this.#isIdle) onEvent();
    };
    this.#idleRead.then(notice, notice);
  }

  wake(): void {
    this.#isIdle = false;
  }

  /** Closes at once. May be called again. */
  close = (): void => {
    this.#isIdle = false;
    if (!this.isOpen) return;
    this.isOpen = false;
    this.#raw.close();
  };
}

/** The connection ended before the first byte of an answer: nothing is known of the request's fate. */
class ConnectionLostError extends Error {
  override readonly name = "ConnectionLostError";
}

/** What {@link HttpClient} needs. */
export interface HttpClientOptions {
  connect: Connect;
  /** Bound of connecting, and of each step of sending a request. */
  connectMs: number;
  now: MonotonicNow;
}

/** Keeps the connections to one server. */
export class HttpClient {
  readonly #options: HttpClientOptions;
  /** Ready for a request, the last used at the end. */
  readonly #idle: Connection[] = [];
  /** Answered, but the end of the body is not in yet. */
  readonly #draining = new Set<Connection>();
  #sweepTimer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;

  constructor(options: HttpClientOptions) {
    this.#options = options;
  }

  /**
   * Sends a request, head and body in one piece, and resolves with the response
   * as soon as its head is there. `onSent` is called when the request is out,
   * or answered before it is. A used connection that turns out to be dead is
   * replaced once. Rejects with the reason for the attempt's end, or
   * `upstream_unreachable`, `upstream_truncated`, `upstream_invalid`.
   */
  async send(
    request: Uint8Array,
    deadlines: AttemptDeadlines,
    onSent: () => void,
  ): Promise<HttpResponse> {
    let connection = this.#takeIdle();
    for (;;) {
      connection ??= await this.#open(deadlines);
      try {
        return await this.#exchange(connection, request, deadlines, onSent);
      } catch (error) {
        connection.close();
        deadlines.throwIfEnded();
        if (!(error instanceof ConnectionLostError)) throw error;
        if (!connection.isReused) {
          throw new UpstreamError("unreachable", { cause: error });
        }
        connection = null;
      }
    }
  }

  /** Connections that are ready for a request. */
  get idleConnections(): number {
    return this.#idle.length;
  }

  /** Closes what is idle. Running responses go on and are not kept afterwards. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#sweepTimer);
    for (const connection of this.#idle.splice(0)) connection.close();
    for (const connection of this.#draining) connection.close();
    this.#draining.clear();
  }

  async #open(deadlines: AttemptDeadlines): Promise<Connection> {
    const controller = new AbortController();
    deadlines.arm("connect", this.#options.connectMs);
    deadlines.onEnd(() => controller.abort());
    try {
      return new Connection(await this.#options.connect(controller.signal));
    } catch (cause) {
      deadlines.throwIfEnded();
      throw new UpstreamError("unreachable", { cause });
    }
  }

  #takeIdle(): Connection | null {
    const connection = this.#idle.pop();
    if (connection === undefined) return null;
    if (this.#options.now() - connection.idleSinceMs >= IDLE_MS) {
      connection.close();
      return null;
    }
    connection.wake();
    return connection;
  }

  async #exchange(
    connection: Connection,
    request: Uint8Array,
    deadlines: AttemptDeadlines,
    onSent: () => void,
  ): Promise<HttpResponse> {
    const armSending = () => deadlines.arm("connect", this.#options.connectMs);
    deadlines.onEnd(connection.close);
    armSending();
    let isSent = false;
    let isAnswered = false;
    connection.write(request, () => {
      if (!isAnswered) armSending();
    }).then(() => {
      isSent = true;
      if (!isAnswered) onSent();
    }, () => {
      // The read that runs beside it learns of the loss, or of an early answer.
    });
    const { head, from, to } = await readHead(connection);
    isAnswered = true;
    if (!isSent) onSent();
    if (head.status === REQUEST_TIMEOUT && connection.isReused) {
      throw new ConnectionLostError("Idle connection timed out");
    }
    return new HttpResponse(connection, head, [from, to], deadlines, {
      draining: () => this.#draining.add(connection),
      drained: (canReuse) => {
        this.#draining.delete(connection);
        if (canReuse && isSent) this.#recycle(connection);
        else connection.close();
      },
    });
  }

  #recycle(connection: Connection): void {
    if (this.#isClosed || this.#idle.length >= IDLE_CONNECTIONS_MAX) {
      return connection.close();
    }
    this.#idle.push(connection);
    connection.sleep(this.#options.now(), () => {
      // The server hung up, or sent something unasked.
      this.#idle.splice(this.#idle.indexOf(connection), 1);
      connection.close();
    });
    this.#sweepLater();
  }

  #sweepLater(): void {
    if (this.#sweepTimer !== undefined) return;
    this.#sweepTimer = setTimeout(() => this.#sweep(), IDLE_MS);
    // Waiting for idle connections must not keep the process alive.
    this.#sweepTimer.unref();
  }

  #sweep(): void {
    this.#sweepTimer = undefined;
    const before = this.#options.now() - IDLE_MS;
    const fresh = this.#idle.findIndex((each) => each.idleSinceMs > before);
    const old = this.#idle.splice(0, fresh < 0 ? this.#idle.length : fresh);
    for (const connection of old) connection.close();
    // One that began to drain just now only loses its reuse.
    for (const connection of this.#draining) connection.close();
    this.#draining.clear();
    if (this.#idle.length > 0) this.#sweepLater();
  }
}

/** What becomes of a connection whose response is done with. */
interface ConnectionFate {
  /** The rest of the body is being read. */
  draining: () => void;
  drained: (canReuse: boolean) => void;
}

/** A response whose head has been read. One of `release` and `close` must be called. */
export class HttpResponse {
  readonly head: ResponseHead;
  readonly #connection: Connection;
  readonly #deadlines: AttemptDeadlines;
  readonly #fate: ConnectionFate;
  readonly #decoder: BodyDecoder;
  /** `[from, to)` of the connection's buffer is not decoded yet. */
  #from: number;
  #to: number;
  #isLeft = false;

  constructor(
    connection: Connection,
    head: ResponseHead,
    [from, to]: [number, number],
    deadlines: AttemptDeadlines,
    fate: ConnectionFate,
  ) {
    this.head = head;
    this.#connection = connection;
    this.#deadlines = deadlines;
    this.#fate = fate;
    this.#decoder = createBodyDecoder(head.framing);
    this.#from = from;
    this.#to = to;
  }

  /**
   * The next bytes of the body, valid until the next call, or null at its end.
   * Reads from the connection only when called. Rejects with the reason for the
   * attempt's end, `upstream_truncated` or `upstream_invalid`.
   */
  async read(): Promise<Uint8Array | null> {
    this.#deadlines.throwIfEnded();
    for (;;) {
      if (this.#from < this.#to) {
        const { buffer } = this.#connection;
        const piece = this.#decoder.decode(buffer, this.#from, this.#to);
        this.#from = this.#to;
        if (piece.length > 0) return piece;
      }
      if (this.#decoder.isComplete) return null;
      const bytes = await this.#readSome();
      if (bytes === null) return null;
      this.#from = 0;
      this.#to = bytes;
    }
  }

  /** Nothing more is wanted: keeps the connection if the body ends soon, else closes it. */
  release(): void {
    if (this.#isLeft) return;
    this.#isLeft = true;
    // From here on the connection may serve another request.
    this.#deadlines.onEnd(() => {});
    const { isKeepAlive, framing } = this.head;
    if (this.#decoder.isComplete && this.#from === this.#to) this.#settle();
    else if (!isKeepAlive || framing === "close") this.#connection.close();
    else {
      this.#fate.draining();
      const settle = () => this.#settle();
      // If the rest of the body fails, all that mattered has been read.
      this.#drain().then(settle, settle);
    }
  }

  /** Hangs up. Without effect after {@link release}. */
  close(): void {
    if (this.#isLeft) return;
    this.#isLeft = true;
    this.#deadlines.onEnd(() => {});
    this.#connection.close();
  }

  async #readSome(): Promise<number | null> {
    let bytes: number | null;
    try {
      bytes = await this.#connection.read(0);
    } catch {
      this.#deadlines.throwIfEnded();
      throw truncatedAnswer("Connection lost within the body");
    }
    if (bytes !== null || this.#decoder.mayEnd) return bytes;
    this.#deadlines.throwIfEnded();
    throw truncatedAnswer("Connection closed within the body");
  }

  async #drain(): Promise<void> {
    let bytes = 0;
    while (bytes <= DRAIN_BYTES_MAX) {
      const piece = await this.read();
      if (piece === null) return;
      bytes += piece.length;
    }
  }

  #settle(): void {
    const { isComplete, surplusBytes } = this.#decoder;
    this.#fate.drained(
      isComplete && surplusBytes === 0 && this.head.isKeepAlive &&
        this.#connection.isOpen,
    );
  }
}

const decoder = new TextDecoder();

/**
 * Reads up to the end of the first response head that is not interim: `[from, to)`
 * of the buffer belongs to the body. Rejects with {@link ConnectionLostError}, or
 * an `UpstreamError` when an answer began and is cut or malformed.
 */
async function readHead(
  connection: Connection,
): Promise<{ head: ResponseHead; from: number; to: number }> {
  const { buffer } = connection;
  let from = 0;
  let to = 0;
  let searchFrom = 0;
  let interim = 0;
  for (;;) {
    const end = findHeadEnd(buffer, searchFrom, to);
    if (end < 0) {
      if (to === buffer.length) {
        throw invalidAnswer(`Response head over ${buffer.length} bytes`);
      }
      // The blank line may have begun in what is there.
      searchFrom = Math.max(from, to - 3);
      to += await readHeadBytes(connection, to);
      continue;
    }
    const head = parseResponseHead(decoder.decode(buffer.subarray(from, end)));
    if (head.status >= 200) return { head, from: end, to };
    if (
      head.status === SWITCHING_PROTOCOLS || ++interim > INTERIM_RESPONSES_MAX
    ) {
      throw invalidAnswer(`Unexpected interim status ${head.status}`);
    }
    from = searchFrom = end;
  }
}

async function readHeadBytes(
  connection: Connection,
  at: number,
): Promise<number> {
  let cause: unknown;
  try {
    const bytes = await connection.read(at);
    if (bytes !== null) return bytes;
  } catch (error) {
    cause = error;
  }
  if (at === 0) throw new ConnectionLostError("Connection lost", { cause });
  throw truncatedAnswer("Connection lost within the response head");
}
