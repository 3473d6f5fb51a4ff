/** What a worker gets of a request: all of it at once, or an upload as it arrives. */
import type { UploadEnd } from "@gateway/shared/bus/job";

/** Files that a client is sending, and the request that follows them. */
export interface Upload {
  /** The next bytes, at most a piece; null once the client has sent everything. */
  next(): Promise<Uint8Array | null>;
  /**
   * What ends the upload: its request. Null if that must not run, for example because
   * it is refused. Whoever made the upload answers the client.
   */
  end(): Promise<UploadEnd | null>;
  /** For how long the next piece has been waited for, in ms; 0: the client keeps up. */
  lateMs(): number;
}

/**
 * A request as JSON, encoded once. It is kept while it may have to be sent to a worker,
 * again or for the first time.
 */
export class WholeBody {
  #bytes: Uint8Array | null;

  /** The request in UTF-8, which nobody changes any more. */
  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** Encodes a request. */
  static of(request: object): WholeBody {
    return new WholeBody(new TextEncoder().encode(JSON.stringify(request)));
  }

  /** The request in UTF-8; null once it was released. */
  get bytes(): Uint8Array | null {
    return this.#bytes;
  }

  /** Forgets the request: it will not be sent again. */
  release(): void {
    this.#bytes = null;
  }
}
