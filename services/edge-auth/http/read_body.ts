import type { Readable } from "node:stream";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines } from "@gateway/shared/process/deadlines";
import { BODY_DEADLINES, BODY_PIECES } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import type { BodyBudget, HeldBody } from "./body_budget.ts";

/** A request whose body is unread. */
export interface BodySource {
  headers: Headers;
  /** Called at most once, when the head says nothing against it. */
  openBody(): Readable;
}

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

/** A whole body. Its bytes count as held until `release`. */
export interface Body {
  bytes: Uint8Array;
  release(): void;
}

const FIRST_BUFFER_BYTES = 64 * 1024;

/**
 * Reads a body; null when the client left before it was whole. Rejects with an
 * `ApiError`: 415 for a `Content-Type` that is not JSON (none at all is fine) or a
 * `Content-Encoding`, 413 for too large, 408 when it stops coming or takes too
 * long, 400 for too many small pieces, 429 and 503 where bodies have no room.
 */
export function readBody(
  source: BodySource,
  options: ReadBodyOptions,
): Promise<Body | null> {
  const { headers } = source;
  const length = declaredLength(headers);
  const error = headerError(headers) ??
    (length > options.bytesMax ? tooLarge(options.bytesMax) : null);
  if (error !== null) return Promise.reject(error);
  return collect(source.openBody(), length, options);
}

function collect(
  body: Readable,
  length: number,
  { keyId, bytesMax, budget, deadlines, now, onTooManyPieces, ...times }:
    ReadBodyOptions,
): Promise<Body | null> {
  const { progressMs, totalMs } = { ...BODY_DEADLINES, ...times };
  return new Promise((resolve, reject) => {
    let bytes: Uint8Array<ArrayBufferLike> = new Uint8Array();
    let size = 0;
    let pieces = 0;
    let held: HeldBody | null = null;
    const totalAtMs = now() + totalMs;
    const deadline = {
      expiresAtMs: now() + Math.min(progressMs, totalMs),
      expire: () => refuse(tooSlow()),
    };
    const leave = () => {
      deadlines.remove(deadline);
      body.off("data", onData).off("end", onEnd).off("close", onClose);
    };
    const refuse = (error: ApiError) => {
      leave();
      held?.release();
      // What is left of it is read and dropped until the connection ends.
      body.resume();
      reject(error);
    };
    const onData = (piece: Uint8Array) => {
      const before = size;
      size += piece.length;
      pieces += 1;
      if (size > bytesMax) return refuse(tooLarge(bytesMax));
      if (pieces > BODY_PIECES.free + size / BODY_PIECES.bytesMin) {
        onTooManyPieces(pieces);
        return refuse(tooManyPieces());
      }
      deadline.expiresAtMs = Math.min(now() + progressMs, totalAtMs);
      if (before === 0 && piece.length === length) {
        bytes = piece;
        return;
      }
      held ??= budget.hold(keyId, refuse);
      const capacity = capacityFor(size, bytes.length, length);
      const full = held.grow(capacity);
      if (full !== null) return refuse(full);
      bytes = withRoom(bytes, capacity, before);
      bytes.set(piece, before);
    };
    const onEnd = () => {
      leave();
      if (held !== null) held.isWhole = true;
      resolve({
        bytes: bytes.subarray(0, size),
        release: () => held?.release(),
      });
    };
    const onClose = () => {
      leave();
      held?.release();
      resolve(null);
    };
    deadlines.add(deadline);
    body.on("data", onData).once("end", onEnd).once("close", onClose);
    if (body.destroyed) onClose();
  });
}

/** Room for `size` bytes: the declared length if that is near, else twice as much as there was. */
function capacityFor(size: number, capacity: number, length: number): number {
  if (size <= capacity) return capacity;
  const doubled = Math.max(2 * capacity, size, FIRST_BUFFER_BYTES);
  return length >= size ? Math.min(doubled, length) : doubled;
}

function withRoom(
  bytes: Uint8Array<ArrayBufferLike>,
  capacity: number,
  size: number,
): Uint8Array<ArrayBufferLike> {
  if (capacity === bytes.length) return bytes;
  const larger = new Uint8Array(capacity);
  larger.set(bytes.subarray(0, size));
  return larger;
}

/** Bytes by `Content-Length`; 0 for a chunked body. The server has refused malformed ones. */
function declaredLength(headers: Headers): number {
  return Number(headers.get("content-length") ?? 0);
}

function headerError(headers: Headers): ApiError | null {
  const type = headers.get("content-type");
  if (type !== null && !isJsonType(type)) {
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
