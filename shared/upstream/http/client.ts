/**
 * An HTTP/1.1 client for one server, made for streams: a response is read only on
 * demand, through one buffer, and the end of the attempt closes the connection at
 * once. The clients of Deno and npm use two to three times as much CPU per read.
 */
import type { AttemptDeadlines } from "./attempt_deadlines.ts";
import type { Connect } from "./connect.ts";
import { ContentDecoder, isPlain } from "./content_coding.ts";
import {
  invalidAnswer,
  truncatedAnswer,
  unsupportedAnswer,
  UpstreamError,
} from "./errors.ts";
import {
  BodyDecoder,
  findHeadEnd,
  parseResponseHead,
  type ResponseHead,
} from "./framing.ts";
import type { ByteConnection } from "./proxy.ts";

/** The largest response head. */
const HEAD_BYTES_MAX = 16 * 1024;
/** Size of a connection's read buffer: four times as much when a read has filled it. */
const READ_BUFFER_BYTES_MIN = 4 * 1024;
const READ_BUFFER_GROWTH = 4;
const READ_BUFFER_BYTES_MAX = 64 * 1024;
const IDLE_CONNECTIONS_MAX = 256;
/**
 * A connection is closed when it was idle during all of one such period: after 20 to
 * 40 s, below the 60 s or more that load balancers allow.
 */
const IDLE_PERIOD_MS = 20_000;
/** The unread rest of a body that is still read in order to keep the connection. */
const DRAIN_BYTES_MAX = 64 * 1024;
const DRAIN_MS = 1_000;

const decoder = new TextDecoder();

/** One connection to a model server, which carries one exchange after the other. */
export class HttpConnection {
  isOpen = true;
  /** Bytes of the body that may still be read: a longer body is invalid. */
  bytesLeft = Infinity;
  /**
   * Called with the length of each piece of the body, which is passed on when the
   * promise resolves.
   */
  onPiece: ((bytes: number) => Promise<void> | undefined) | null = null;
  /** Its bytes in `[from, to)` were received but not used yet. */
  #buffer = new Uint8Array(READ_BUFFER_BYTES_MIN);
  #from = 0;
  #to = 0;
  #deadlines: AttemptDeadlines | null = null;
  #isSent = false;
  #isKeepAlive = false;
  #body = new BodyDecoder(0);
  /** Undoes the compression of the body; null if there is none. */
  #contentDecoder: ContentDecoder | null = null;
  #idleRead: Promise<number | null> | null = null;

  /**
   * `onReusable` is called when a response was released and the connection can be
   * reused.
   */
  constructor(
    readonly raw: ByteConnection,
    readonly onReusable: (connection: HttpConnection) => void,
  ) {}

  /**
   * Sends the pieces of a request and resolves with the first head that is not interim,
   * or with null if the connection was idle and the server has closed it instead.
   * Rejects with the reason for the attempt's end, or an `UpstreamError`.
   */
  async exchange(
    request: readonly Uint8Array[],
    deadlines: AttemptDeadlines,
  ): Promise<ResponseHead | null> {
    this.#deadlines = deadlines;
    this.#isSent = false;
    this.#isKeepAlive = false;
    const wasIdle = this.#idleRead !== null;
    void this.#write(request);
    let head = await this.#readHead({ wasIdle });
    while (head && head.status < 200) {
      head = await this.#readHead({ wasIdle: false });
    }
    if (head === null) return null;
    this.#isKeepAlive = head.isKeepAlive;
    this.#body = new BodyDecoder(head.framing);
    this.#contentDecoder = isPlain(head.contentEncoding)
      ? null
      : new ContentDecoder(head.contentEncoding);
    this.bytesLeft = Infinity;
    this.onPiece = null;
    return head;
  }

  /**
   * The next bytes of the body, valid until the next call, or null at its end. Reads
   * only when called.
   */
  read(): Promise<Uint8Array | null> {
    const decoder = this.#contentDecoder;
    return decoder === null ? this.#readRaw() : this.#readDecoded(decoder);
  }

  async #readRaw(): Promise<Uint8Array | null> {
    this.#deadlines?.throwIfEnded();
    for (;;) {
      const piece = this.#body.decode(this.#buffer, this.#from, this.#to);
      this.#from = this.#body.usedTo;
      if (this.#contentDecoder === null) {
        const room = this.#count(piece.length);
        if (room !== undefined) await room;
      }
      if (piece.length > 0) return piece;
      if (this.#body.isComplete) return null;
      if (await this.#fill()) continue;
      if (this.#body.framing === "close") return null;
      throw truncatedAnswer("Body cut short");
    }
  }

  async #readDecoded(decoder: ContentDecoder): Promise<Uint8Array | null> {
    const piece = await decoder.read(() => this.#readRaw());
    this.#deadlines?.throwIfEnded();
    if (piece !== null) await this.#count(piece.length);
    return piece;
  }

  /** Counts bytes of the body, as they are without compression. */
  #count(bytes: number): Promise<void> | undefined {
    this.bytesLeft -= bytes;
    if (this.bytesLeft < 0) throw unsupportedAnswer("Response body too long");
    const room = this.onPiece?.(bytes);
    return room === undefined ? undefined : this.#waitFor(room);
  }

  async #waitFor(room: Promise<void>): Promise<void> {
    this.#deadlines?.rest();
    await room;
    this.#deadlines?.throwIfEnded();
  }

  /**
   * Reads the body to its end as UTF-8 text, after the `start` that was read already.
   * Its pieces may be `betweenMs` apart; if absent, the phase goes on.
   */
  async readText(
    betweenMs?: number,
    start: Uint8Array | null = null,
  ): Promise<string> {
    if (start !== null && this.#body.isComplete) return decoder.decode(start);
    let pieces = start === null ? null : new TextDecoder();
    let text = pieces?.decode(start ?? undefined, { stream: true }) ?? "";
    for (;;) {
      if (betweenMs !== undefined) {
        this.#deadlines?.arm("betweenTokens", betweenMs);
      }
      const piece = await this.read();
      const isAll = pieces === null && this.#contentDecoder === null &&
        this.#body.isComplete;
      if (piece !== null && isAll) return decoder.decode(piece);
      pieces ??= new TextDecoder();
      if (piece === null) return text + pieces.decode();
      text += pieces.decode(piece, { stream: true });
    }
  }

  /**
   * Keeps the connection if all of the body was read or, when `isDone`, its rest is
   * short; else closes it.
   */
  release({ isDone }: { isDone: boolean }): void {
    const hasRest = isDone && this.#isKeepAlive && !this.#body.isComplete;
    if (hasRest) void this.#readRest().then(() => this.#keepOrClose());
    else this.#keepOrClose();
  }

  /** Reads the rest of a body, or closes if that is long or slow. Never rejects. */
  async #readRest(): Promise<void> {
    const giveUp = setTimeout(() => this.close(), DRAIN_MS);
    this.bytesLeft = DRAIN_BYTES_MAX;
    try {
      while (await this.read() !== null);
    } catch {
      // A failure does not matter, because the answer is complete.
    }
    clearTimeout(giveUp);
  }

  #keepOrClose(): void {
    this.#contentDecoder?.close();
    const isReusable = this.isOpen && this.#isSent && this.#isKeepAlive &&
      this.#body.isComplete && this.#from === this.#to;
    if (isReusable) this.onReusable(this);
    else this.close();
  }

  /**
   * Reads ahead while the connection is idle, so that its end is noticed at once and
   * not by the next request. Calls `onEnd` when this read ends, which is also the
   * first read of the next response.
   */
  sleep(onEnd: () => void): void {
    this.#from = 0;
    this.#to = 0;
    if (this.#buffer.length > HEAD_BYTES_MAX) {
      this.#buffer = new Uint8Array(READ_BUFFER_BYTES_MIN);
    }
    this.#idleRead = this.raw.read(this.#buffer);
    this.#idleRead.then(onEnd, onEnd);
  }

  /** Closes at once. May be called repeatedly. */
  close(): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.#contentDecoder?.close();
    this.raw.close();
  }

  async #write(pieces: readonly Uint8Array[]): Promise<void> {
    try {
      for (const bytes of pieces) {
        for (let at = 0; at < bytes.length;) {
          at += await this.raw.write(at === 0 ? bytes : bytes.subarray(at));
        }
      }
      this.#isSent = true;
    } catch {
      // The concurrent read reports the loss, or receives an early answer.
    }
  }

  async #readHead(
    { wasIdle }: { wasIdle: boolean },
  ): Promise<ResponseHead | null> {
    for (;;) {
      const end = findHeadEnd(this.#buffer, this.#from, this.#to);
      if (end >= 0) {
        const head = this.#buffer.subarray(this.#from, end);
        this.#from = end;
        return parseResponseHead(decoder.decode(head));
      }
      if (this.#to - this.#from >= HEAD_BYTES_MAX) {
        throw invalidAnswer(`Response head over ${HEAD_BYTES_MAX} bytes`);
      }
      if (await this.#fill()) continue;
      if (this.#to > 0) throw truncatedAnswer("Response head cut short");
      if (wasIdle) return null;
      const cause = new Error("Connection lost before an answer");
      throw new UpstreamError("unreachable", { cause });
    }
  }

  /** Reads more bytes; returns false when the connection is closed or lost. */
  async #fill(): Promise<boolean> {
    const small = this.#buffer;
    if (
      this.#to === small.length && small.length < READ_BUFFER_BYTES_MAX
    ) {
      this.#buffer = new Uint8Array(small.length * READ_BUFFER_GROWTH);
      this.#buffer.set(small);
    }
    // A head that is not complete yet must stay whole in the buffer.
    const at = this.#from === this.#to ? 0 : this.#to;
    const space = at === 0 ? this.#buffer : this.#buffer.subarray(at);
    let bytes: number | null = null;
    try {
      bytes = await (this.#idleRead ?? this.raw.read(space));
    } catch {
      // As if it had been closed.
    }
    this.#idleRead = null;
    if (bytes === null) {
      this.#deadlines?.throwIfEnded();
      return false;
    }
    if (at === 0) this.#from = 0;
    this.#to = at + bytes;
    return true;
  }
}

/** The connections to one model server: those that are idle are used again. */
export class HttpClient {
  /** Ready for a request; the most recently used is last. */
  readonly idle: HttpConnection[] = [];
  /**
   * How many connections at the start of `idle` have been idle since the current {@link
   * IDLE_PERIOD_MS} began.
   */
  #unused = 0;
  #sweep: ReturnType<typeof setInterval> | undefined;
  #isClosed = false;

  constructor(readonly connect: Connect, readonly connectMs: number) {}

  /**
   * A connection for one attempt, a new one after a `lost` one. Rejects with the reason
   * for its end, or `upstream_unreachable`.
   */
  async connection(deadlines: AttemptDeadlines, lost?: HttpConnection | null) {
    lost?.close();
    const idle = lost ? undefined : this.idle.pop();
    const connection = idle ?? await this.#open(deadlines);
    this.#unused = Math.min(this.#unused, this.idle.length);
    deadlines.onEnd(() => connection.close());
    deadlines.throwIfEnded();
    return connection;
  }

  /** Closes the idle connections. Those in use are closed after their responses. */
  close(): void {
    this.#isClosed = true;
    clearInterval(this.#sweep);
    for (const connection of this.idle.splice(0)) connection.close();
  }

  /** Closes the connections that were idle during all of the period that ends now. */
  closeUnused(): void {
    const unused = this.idle.splice(0, this.#unused);
    for (const connection of unused) connection.close();
    this.#unused = this.idle.length;
    if (this.#unused > 0) return;
    clearInterval(this.#sweep);
    this.#sweep = undefined;
  }

  async #open(deadlines: AttemptDeadlines): Promise<HttpConnection> {
    deadlines.arm("connect", this.connectMs);
    const ending = new AbortController();
    deadlines.onEnd(() => ending.abort());
    try {
      const raw = await this.connect(ending.signal);
      return new HttpConnection(raw, (connection) => this.#keep(connection));
    } catch (cause) {
      deadlines.throwIfEnded();
      throw new UpstreamError("unreachable", { cause });
    }
  }

  #keep(connection: HttpConnection): void {
    if (this.#isClosed || this.idle.length >= IDLE_CONNECTIONS_MAX) {
      return connection.close();
    }
    this.idle.push(connection);
    if (this.#sweep === undefined) {
      this.#sweep = setInterval(() => this.closeUnused(), IDLE_PERIOD_MS);
      // The timer must not keep the process alive.
      this.#sweep.unref();
    }
    connection.sleep(() => {
      const index = this.idle.indexOf(connection);
      if (index < 0) return; // A request waits for these bytes.
      // The server closed it or sent unexpected data.
      this.idle.splice(index, 1);
      if (index < this.#unused) this.#unused -= 1;
      connection.close();
    });
  }
}
