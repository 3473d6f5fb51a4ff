/**
 * Decodes the bodies of servers and proxies that compress although `identity` was asked
 * for (RFC 9110, section 8.4).
 */
import { Buffer } from "node:buffer";
import {
  type BrotliDecompress,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
  type Gunzip,
  type Inflate,
  type InflateRaw,
  type ZstdDecompress,
} from "node:zlib";
import { invalidAnswer, truncatedAnswer } from "./errors.ts";

/** A stream of `node:zlib`. */
type Decompressor =
  | BrotliDecompress
  | Gunzip
  | Inflate
  | InflateRaw
  | ZstdDecompress;

/** A piece of a body, which is valid until the next call; null at its end. */
export type ReadPiece = () => Promise<Uint8Array | null>;

/**
 * Decoded bytes that are made before a reader wants them: a small piece may stand for
 * gigabytes.
 */
const AHEAD_BYTES_MAX = 64 * 1024;
const OPTIONS = { chunkSize: AHEAD_BYTES_MAX };
/** The low half of the first byte of zlib's format (RFC 1950), which some leave out. */
const ZLIB_METHOD = 8;

const CODINGS: {
  readonly [coding: string]: (start: Uint8Array) => Decompressor;
} = {
  gzip: () => createGunzip(OPTIONS),
  "x-gzip": () => createGunzip(OPTIONS),
  deflate: ([first = 0]) =>
    (first & 0x0f) === ZLIB_METHOD
      ? createInflate(OPTIONS)
      : createInflateRaw(OPTIONS),
  br: () => createBrotliDecompress(OPTIONS),
  zstd: () => createZstdDecompress(OPTIONS),
};

/** Whether a `content-encoding` says that a body is as it should be. */
export const isPlain = (contentEncoding: string): boolean =>
  /^(identity)?$/.test(contentEncoding);

/** The decoder of one body. It reads no further than its reader does. */
export class ContentDecoder {
  readonly #coding: string;
  #stream: Decompressor | null = null;
  #isWriting = false;
  #isOver = false;
  #error: unknown = null;
  #changed = Promise.withResolvers<void>();

  /** `coding` is the value of `content-encoding` in lower case. */
  constructor(coding: string) {
    this.#coding = coding;
  }

  /**
   * The next decoded bytes, or null at the end. Gets what it needs from `readPiece`.
   * Rejects with `upstream_invalid` for a coding that is not known, or broken.
   */
  async read(readPiece: ReadPiece): Promise<Uint8Array | null> {
    for (;;) {
      if (this.#error !== null) throw this.#fault();
      const decoded: Uint8Array | null = this.#stream?.read() ?? null;
      if (decoded !== null) return decoded;
      if (this.#isOver) return null;
      if (this.#isWriting) await this.#changed.promise;
      else this.#write(await readPiece());
    }
  }

  /** Ends it at once; a read that waits gets null. */
  close(): void {
    this.#isOver = true;
    this.#stream?.destroy();
    this.#wake();
  }

  #write(piece: Uint8Array | null): void {
    this.#isWriting = true;
    if (piece === null) {
      if (this.#stream === null) this.#isOver = true;
      else this.#stream.end();
      return;
    }
    this.#stream ??= this.#open(piece);
    this.#stream.write(Buffer.copyBytesFrom(piece), () => {
      this.#isWriting = false;
      this.#wake();
    });
  }

  #open(start: Uint8Array): Decompressor {
    const open = CODINGS[this.#coding];
    if (open === undefined) throw invalidAnswer("Unsupported content coding");
    const stream = open(start);
    stream.on("readable", () => this.#wake());
    stream.on("end", () => {
      this.#isOver = true;
      this.#wake();
    });
    stream.on("error", (error) => {
      this.#error = error;
      this.#wake();
    });
    return stream;
  }

  #fault() {
    const error = this.#error;
    const isCut = error instanceof Error && "code" in error &&
      error.code === "Z_BUF_ERROR";
    return isCut
      ? truncatedAnswer(`Body in ${this.#coding} cut short`)
      : invalidAnswer(`Body is not ${this.#coding}`);
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}
