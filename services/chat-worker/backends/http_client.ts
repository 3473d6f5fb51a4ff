/**
 * An HTTP/1.1 client of one server, made for streams: a response is read only as
 * fast as its reader asks, through one buffer, and the end of the attempt closes
 * the connection at once. The clients of Deno and npm cost two to three times as
 * much CPU per read.
 */
import type { AttemptDeadlines } from "./attempt_deadlines.ts";
import { invalidAnswer, truncatedAnswer, UpstreamError } from "./errors.ts";
import {
  BodyDecoder,
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
/** What may follow the part of a body that mattered before the connection is given up. */
const DRAIN_BYTES_MAX = 64 * 1024;
const DRAIN_MS = 1_000;
/** Interim responses skipped before the final one. */
const INTERIM_RESPONSES_MAX = 16;
const SWITCHING_PROTOCOLS = 101;

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
export function createConnect(
  { hostname, port, isTls, caCerts = [] }: ConnectOptions,
): Connect {
  return async (signal) => {
    const tcp = await Deno.connect({ hostname, port, signal });
    let connection: Deno.TcpConn | Deno.TlsConn = tcp;
    let isOpen = true;
    const close = () => {
      if (isOpen) connection.close();
      isOpen = false;
    };
    try {
      signal.throwIfAborted();
      tcp.setNoDelay(true);
      tcp.setKeepAlive(true);
      if (!isTls) return tcp;
      // A server that offers HTTP/2 too must not choose it.
      const alpnProtocols = ["http/1.1"];
      connection = await Deno.startTls(tcp, {
        hostname,
        alpnProtocols,
        caCerts,
      });
      signal.addEventListener("abort", close, { once: true });
      signal.throwIfAborted();
      await connection.handshake();
      return connection;
    } catch (error) {
      close();
      throw error;
    } finally {
      signal.removeEventListener("abort", close);
    }
  };
}

/** A connection with its read buffer. */
class Connection {
  /** Bytes of the last read. Overwritten by the next one. */
  readonly buffer = new Uint8Array(READ_BUFFER_BYTES);
  isOpen = true;
  readonly #raw: ByteConnection;
  #idleRead: Promise<number | null> | null = null;
  #idleTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(raw: ByteConnection) {
    this.#raw = raw;
  }

  /** Reads into the buffer from `at` on; null when the connection is closed or lost. */
  async read(at: number): Promise<number | null> {
    clearTimeout(this.#idleTimer);
    const reading = this.#idleRead ??
      this.#raw.read(at === 0 ? this.buffer : this.buffer.subarray(at));
    this.#idleRead = null;
    try {
      return await reading;
    } catch {
      return null;
    }
  }

  /** Writes all, or nothing more once the connection is lost, of which the reader learns. */
  async write(bytes: Uint8Array): Promise<boolean> {
    try {
      for (let at = 0; at < bytes.length;) {
        at += await this.#raw.write(at === 0 ? bytes : bytes.subarray(at));
      }
      return true;
    } catch {
      return false;
    }
  }

  /**
   * Reads ahead while the connection is idle, so that its end is noticed when it
   * happens and not by the next request. `onEvent` is called when the read ends,
   * which becomes the first one of the next response, or after too long.
   */
  sleep(onEvent: () => void): void {
    this.#idleRead = this.#raw.read(this.buffer);
    this.#idleRead.then(onEvent, onEvent);
    this.#idleTimer = setTimeout(onEvent, IDLE_MS);
    // It must not keep the process alive.
    this.#idleTimer.unref();
  }

  /** Closes at once. May be called again. */
  close = (): void => {
    if (!this.isOpen) return;
    this.isOpen = false;
    clearTimeout(this.#idleTimer);
    this.#raw.close();
  };
}

/** What {@link HttpClient} needs. */
export interface HttpClientOptions {
  connect: Connect;
  /** Bound of connecting. */
  connectMs: number;
}

/** Keeps the connections to one server. */
export class HttpClient {
  readonly #options: HttpClientOptions;
  /** Ready for a request, the last used at the end. */
  readonly #idle: Connection[] = [];
  #isClosed = false;

  constructor(options: HttpClientOptions) {
    this.#options = options;
  }

  /**
   * Sends a request, head and body in one piece, and resolves with the response
   * as soon as its head is there. `onConnected` is called before it is sent.
   * Rejects with the reason for the attempt's end, or `upstream_unreachable`,
   * `upstream_truncated`, `upstream_invalid`.
   */
  async send(
    request: Uint8Array,
    deadlines: AttemptDeadlines,
    onConnected: () => void,
  ): Promise<HttpResponse> {
    const connection = this.#idle.pop() ?? await this.#open(deadlines);
    deadlines.onEnd(connection.close);
    onConnected();
    let isSent = false;
    void connection.write(request).then((isWhole) => isSent = isWhole);
    try {
      return await readHead(connection, deadlines, () => {
        // An answer that came before the request was out leaves the rest of it.
        if (isSent) this.#recycle(connection);
        else connection.close();
      });
    } catch (error) {
      connection.close();
      deadlines.throwIfEnded();
      throw error;
    }
  }

  /** Connections that are ready for a request. */
  get idleConnections(): number {
    return this.#idle.length;
  }

  /** Closes what is idle. Running responses go on and are not kept afterwards. */
  close(): void {
    this.#isClosed = true;
    for (const connection of this.#idle.splice(0)) connection.close();
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

  #recycle(connection: Connection): void {
    if (this.#isClosed || this.#idle.length >= IDLE_CONNECTIONS_MAX) {
      return connection.close();
    }
    this.#idle.push(connection);
    connection.sleep(() => {
      const index = this.#idle.indexOf(connection);
      if (index < 0) return; // A request waits for these bytes.
      // The server hung up, or sent something unasked, or nobody needs it.
      this.#idle.splice(index, 1);
      connection.close();
    });
  }
}

/** A response whose head has been read. One of `release` and `close` must be called. */
export class HttpResponse {
  readonly head: ResponseHead;
  readonly #connection: Connection;
  readonly #deadlines: AttemptDeadlines;
  readonly #recycle: () => void;
  readonly #decoder: BodyDecoder;
  /** `[from, to)` of the connection's buffer is not decoded yet. */
  #from: number;
  #to: number;
  #isLeft = false;

  /** `recycle` takes a connection that can be used again. */
  constructor(
    connection: Connection,
    head: ResponseHead,
    [from, to]: [number, number],
    deadlines: AttemptDeadlines,
    recycle: () => void,
  ) {
    this.head = head;
    this.#connection = connection;
    this.#deadlines = deadlines;
    this.#recycle = recycle;
    this.#decoder = new BodyDecoder(head.framing);
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
      const bytes = await this.#connection.read(0);
      if (bytes === null) {
        this.#deadlines.throwIfEnded();
        if (this.#decoder.mayEnd) return null;
        throw truncatedAnswer("Connection lost within the body");
      }
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
    if (!isKeepAlive || framing === "close") this.#connection.close();
    else if (this.#decoder.isComplete) this.#settle();
    else void this.#drain();
  }

  /** Hangs up. Without effect after {@link release}. */
  close(): void {
    if (this.#isLeft) return;
    this.#isLeft = true;
    this.#deadlines.onEnd(() => {});
    this.#connection.close();
  }

  /** Reads the rest of the body, if it is short. Never rejects. */
  async #drain(): Promise<void> {
    const giveUp = setTimeout(this.#connection.close, DRAIN_MS);
    try {
      for (let bytes = 0; bytes <= DRAIN_BYTES_MAX;) {
        const piece = await this.read();
        if (piece === null) break;
        bytes += piece.length;
      }
    } catch {
      // All that mattered has been read.
    }
    clearTimeout(giveUp);
    this.#settle();
  }

  #settle(): void {
    const { isComplete, surplusBytes } = this.#decoder;
    const isAllRead = isComplete && surplusBytes === 0 &&
      this.#from === this.#to;
    if (isAllRead && this.#connection.isOpen) this.#recycle();
    else this.#connection.close();
  }
}

const decoder = new TextDecoder();

/**
 * Reads the first response head that is not interim. Rejects with an
 * `UpstreamError`: `unreachable` when not a byte of an answer came.
 */
async function readHead(
  connection: Connection,
  deadlines: AttemptDeadlines,
  recycle: () => void,
): Promise<HttpResponse> {
  const { buffer } = connection;
  let from = 0;
  let to = 0;
  let searchFrom = 0;
  for (let interim = 0; interim <= INTERIM_RESPONSES_MAX;) {
    const end = findHeadEnd(buffer, searchFrom, to);
    if (end < 0) {
      if (to === buffer.length) {
        throw invalidAnswer(`Response head over ${buffer.length} bytes`);
      }
      // The blank line may have begun in what is there.
      searchFrom = Math.max(from, to - 3);
      const bytes = await connection.read(to);
      if (bytes === null && to === 0) {
        const cause = new Error("Connection lost before an answer");
        throw new UpstreamError("unreachable", { cause });
      }
      if (bytes === null) throw truncatedAnswer("Response head cut short");
      to += bytes;
      continue;
    }
    const head = parseResponseHead(decoder.decode(buffer.subarray(from, end)));
    if (head.status >= 200) {
      const rest: [number, number] = [end, to];
      return new HttpResponse(connection, head, rest, deadlines, recycle);
    }
    if (head.status === SWITCHING_PROTOCOLS) break;
    interim += 1;
    from = searchFrom = end;
  }
  throw invalidAnswer("Unexpected interim response");
}
