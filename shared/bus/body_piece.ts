/**
 * Pieces of a request too large for one message. The edge cuts, the worker puts
 * together; every piece is a NATS request whose empty reply acknowledges it.
 *
 * ```
 * 0  u32  attempt   which try of the request this belongs to
 * 4  u32  index     0, 1, 2 …
 * 8  …    bytes
 * ```
 */
import { BUS_LIMITS } from "../limits.ts";

const PIECE_HEADER_BYTES = 8;
const INDEX_OFFSET = 4;

export interface BodyPiece {
  attempt: number;
  index: number;
  /** A view into the message. */
  bytes: Uint8Array;
}

/** How many pieces a body of this size makes. */
export function pieceCount(bodyBytes: number): number {
  return Math.ceil(bodyBytes / BUS_LIMITS.pieceBytes);
}

/** Message with piece `index` of `body`. */
export function encodePiece(
  body: Uint8Array,
  attempt: number,
  index: number,
): Uint8Array {
  const start = index * BUS_LIMITS.pieceBytes;
  const part = body.subarray(start, start + BUS_LIMITS.pieceBytes);
  const message = new Uint8Array(PIECE_HEADER_BYTES + part.length);
  const view = new DataView(message.buffer);
  view.setUint32(0, attempt);
  view.setUint32(INDEX_OFFSET, index);
  message.set(part, PIECE_HEADER_BYTES);
  return message;
}

/** Reads a piece, or null when the message is too short to be one. */
export function decodePiece(message: Uint8Array): BodyPiece | null {
  if (message.length < PIECE_HEADER_BYTES) return null;
  const view = new DataView(
    message.buffer,
    message.byteOffset,
    PIECE_HEADER_BYTES,
  );
  return {
    attempt: view.getUint32(0),
    index: view.getUint32(INDEX_OFFSET),
    bytes: message.subarray(PIECE_HEADER_BYTES),
  };
}

/** What became of a piece that was added. */
export type AddedPiece = "more" | "complete" | "invalid";

/**
 * Puts a body together. Memory is taken once, for the announced size, so a
 * sender cannot make it grow; a piece twice is harmless.
 */
export class BodyAssembly {
  readonly #body: Uint8Array;
  readonly #has: boolean[];
  #missing: number;

  constructor(announced: { bytes: number; pieces: number }) {
    if (announced.pieces !== pieceCount(announced.bytes)) {
      throw new RangeError(
        `Cannot assemble a body: ${announced.bytes} bytes do not make ${announced.pieces} pieces`,
      );
    }
    this.#body = new Uint8Array(announced.bytes);
    this.#has = new Array<boolean>(announced.pieces).fill(false);
    this.#missing = announced.pieces;
  }

  /** The body, once `add` said it is complete. */
  get body(): Uint8Array {
    return this.#body;
  }

  add(piece: BodyPiece): AddedPiece {
    const start = piece.index * BUS_LIMITS.pieceBytes;
    const expected = Math.min(
      BUS_LIMITS.pieceBytes,
      this.#body.length - start,
    );
    if (piece.bytes.length !== expected) return "invalid";
    if (this.#has[piece.index] === false) {
      this.#has[piece.index] = true;
      this.#missing -= 1;
      this.#body.set(piece.bytes, start);
    }
    return this.#missing === 0 ? "complete" : "more";
  }
}
