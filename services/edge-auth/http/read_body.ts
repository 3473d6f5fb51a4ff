/** Reads request bodies within bounds of size, time, pieces and memory. */
import { Buffer } from "node:buffer";
import type { Readable } from "node:stream";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines } from "@gateway/shared/process/deadlines";
import { BODY_DEADLINES, BODY_PIECES } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import type { BodyBudget, HeldBody } from "./body_budget.ts";
import type { Exchange } from "./server.ts";

export interface ReadBodyOptions {
  keyId: string;
  /** Beyond: 413. */
  bytesMax: number;
  budget: BodyBudget;
  /** One timer for all bodies. */
  deadlines: Deadlines;
  now: MonotonicNow;
  /** Told of a body that is refused for its number of pieces. */
  onTooManyPieces: (pieces: number) => void;
  /** Default {@link BODY_DEADLINES}. */
  progressMs?: number;
  totalMs?: number;
}

/**
 * Reads a body; null when the client left before it was whole. Rejects with an
 * `ApiError`: 415 for a `Content-Type` that is not JSON (none at all is fine) or a
 * `Content-Encoding`, 413 for too large, 408 when it stops coming or takes too
 * long, 400 for too many small pieces, 429 and 503 where bodies have no room.
 */
export async function readBody(
  { headers, openBody }: Pick<Exchange, "headers" | "openBody">,
  options: ReadBodyOptions,
): Promise<Uint8Array | null> {
  const length = declaredLength(headers);
  const error = headerError(headers) ??
    (length > options.bytesMax ? tooLarge(options.bytesMax) : null);
  if (error !== null) throw error;
  return await collect(openBody(), length, options);
}

function collect(
  body: Readable,
  length: number,
  { keyId, bytesMax, budget, deadlines, now, onTooManyPieces, ...times }:
    ReadBodyOptions,
): Promise<Uint8Array | null> {
  const { progressMs, totalMs } = { ...BODY_DEADLINES, ...times };
  return new Promise((resolve, reject) => {
    const pieces: Uint8Array[] = [];
    let size = 0;
    const totalAtMs = now() + totalMs;
    const deadline = {
      expiresAtMs: now() + Math.min(progressMs, totalMs),
      expire: () => refuse(tooSlow()),
    };
    const stop = () => {
      deadlines.remove(deadline);
      body.off("data", onData).off("end", onEnd).off("close", onClose);
      budget.release(held);
    };
    const refuse = (error: ApiError) => {
      stop();
      // What is left of it is read and dropped until the connection ends.
      body.resume();
      reject(error);
    };
    const held: HeldBody = { keyId, bytes: 0, refuse };
    const onData = (piece: Uint8Array) => {
      size += piece.length;
      if (size > bytesMax) return refuse(tooLarge(bytesMax));
      if (pieces.length >= BODY_PIECES.free + size / BODY_PIECES.bytesMin) {
        onTooManyPieces(pieces.length);
        return refuse(tooManyPieces());
      }
      deadline.expiresAtMs = Math.min(now() + progressMs, totalAtMs);
      if (piece.length === length) return void pieces.push(piece);
      const error = budget.grow(held, piece.length);
      if (error !== null) return refuse(error);
      // Copied: a small piece may be the view of a large buffer.
      pieces.push(new Uint8Array(piece));
    };
    const onEnd = () => {
      stop();
      const [only] = pieces;
      const isOne = pieces.length === 1 && only !== undefined;
      resolve(isOne ? only : Buffer.concat(pieces));
    };
    const onClose = () => {
      stop();
      resolve(null);
    };
    deadlines.add(deadline);
    body.on("data", onData).once("end", onEnd).once("close", onClose);
    if (body.destroyed) onClose();
  });
}

/** Bytes by `Content-Length`; 0 for a chunked body. The server has refused malformed ones. */
function declaredLength(headers: Exchange["headers"]): number {
  return Number(headers.get("content-length") ?? 0);
}

function headerError(headers: Exchange["headers"]): ApiError | null {
  const type = headers.get("content-type");
  if (type !== undefined && !isJsonType(type)) {
    return unsupported(
      "Unsupported 'Content-Type'. Send the body as JSON, with " +
        "'Content-Type: application/json'.",
    );
  }
  const encoding = headers.get("content-encoding")?.trim().toLowerCase() ?? "";
  if (encoding === "" || encoding === "identity") return null;
  return unsupported(
    "Unsupported 'Content-Encoding'. Send the body without compression.",
  );
}

/** `application/json`, anything that ends in `+json`, and nothing at all. */
function isJsonType(value: string): boolean {
  if (value === "application/json") return true;
  const [essence = ""] = value.split(";", 1);
  const name = essence.trim().toLowerCase();
  return name === "" || name === "application/json" ||
    /^[^\s/]+\/[^\s/]+\+json$/.test(name);
}

function unsupported(message: string): ApiError {
  return new ApiError("unsupported_media_type", message);
}

/** The rest of a refused body would be taken for the next request. */
const CLOSE = { headers: { connection: "close" } };

function tooLarge(bytesMax: number): ApiError {
  return new ApiError(
    "request_too_large",
    `The request body is too large. The limit is ${bytesMax} bytes.`,
    CLOSE,
  );
}

function tooSlow(): ApiError {
  return new ApiError(
    "request_timeout",
    "The request body did not arrive in time.",
    CLOSE,
  );
}

function tooManyPieces(): ApiError {
  return new ApiError(
    "invalid_request",
    "The request body came in too many pieces. Send it with a " +
      "'Content-Length', or in larger chunks.",
    CLOSE,
  );
}
