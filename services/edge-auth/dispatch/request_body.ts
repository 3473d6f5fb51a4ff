/** What a worker gets of a request: all of it at once, or an upload as it arrives. */
import { freeBytes } from "@gateway/shared/bus/free_bytes";
import type { UploadEnd } from "@gateway/shared/bus/job";
import { encodeUtf8 } from "@gateway/shared/text/utf8";

/** Files that a client is sending, and the request that follows them. */
export interface Upload {
  /**
   * The next bytes, at most a piece; null once the client has sent everything. Whoever
   * gets them may free them.
   */
  next(): Promise<Uint8Array | null>;
  /**
   * What ends the upload: its request. Null if that must not run, for example because
   * it is refused. Whoever made the upload answers the client.
   */
  end(): Promise<UploadEnd | null>;
  /** How long the run has waited for the next piece, in ms; 0: the client keeps up. */
  lateMs(): number;
}

/** What a body holds of the memory of its edge. */
export interface MemoryShare {
  /**
   * The body is needed, and has this many bytes; without a number, as many as before.
   */
  keep(bytes?: number): void;
  /** The body is dispensable: `giveUp` is called when its memory is needed. */
  spare(giveUp: () => void): void;
  release(): void;
}

/**
 * A request as JSON, encoded once. It is kept while it may have to be sent to a worker,
 * again or for the first time.
 */
export class WholeBody {
  #bytes: Uint8Array | null;
  readonly #share: MemoryShare | null;

  /**
   * The request in UTF-8, which nobody else reads or changes any more, and what it
   * holds of the edge's memory, if that is counted.
   */
  constructor(bytes: Uint8Array, share: MemoryShare | null = null) {
    this.#bytes = bytes;
    this.#share = share;
    share?.keep(bytes.length);
  }

  /** Encodes a request. */
  static encode(request: object, share: MemoryShare | null = null): WholeBody {
    return new WholeBody(encodeUtf8(JSON.stringify(request)), share);
  }

  /** The request in UTF-8; null once it was released. */
  get bytes(): Uint8Array | null {
    return this.#bytes;
  }

  /** It is about to be sent to a worker. */
  send(): Uint8Array | null {
    if (this.#bytes !== null) this.#share?.keep();
    return this.#bytes;
  }

  /** A worker has it, so it is dispensable if its memory is needed. */
  delivered(): void {
    if (this.#bytes !== null) this.#share?.spare(() => this.release());
  }

  /** Forgets the request: it will not be sent again. */
  release(): void {
    if (this.#bytes === null) return;
    freeBytes(this.#bytes);
    this.#bytes = null;
    this.#share?.release();
  }
}

/** A worker has all of a request. An upload keeps nothing of what it has sent. */
export function bodyDelivered(body: WholeBody | Upload): void {
  if (body instanceof WholeBody) body.delivered();
}

/** Forgets a request: it will not be sent again. */
export function releaseBody(body: WholeBody | Upload): void {
  if (body instanceof WholeBody) body.release();
}

/**
 * Whether all of a request can still be sent to another worker. What a client has
 * uploaded to a worker that has accepted it is gone.
 */
export function isBodyKept(
  body: WholeBody | Upload,
  wasAccepted: boolean,
): boolean {
  return body instanceof WholeBody ? body.bytes !== null : !wasAccepted;
}

/**
 * For how long a worker has waited for the client of a request, in ms: for the next
 * piece of an upload, or until it takes more of an answer.
 */
export const lateMsOf = (
  body: WholeBody | Upload,
  sink: { lateMs?(nowMs: number): number },
  nowMs: number,
): number =>
  body instanceof WholeBody ? sink.lateMs?.(nowMs) ?? 0 : body.lateMs();
