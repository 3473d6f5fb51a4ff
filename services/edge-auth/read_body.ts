import { ApiError } from "@gateway/shared/openai/error";
import type { MonotonicNow } from "@gateway/shared/clock";
import type { Deadlines } from "@gateway/shared/deadlines";

/** What reading a request body came to. */
export type BodyOutcome =
  | { type: "body"; bytes: Uint8Array<ArrayBuffer> }
  | {
    type: "refused";
    error: ApiError;
    /**
     * The rest of the body is still to come: answer with `connection: close`.
     * That asks the client; Deno 2.9.6 itself leaves the connection open, so a
     * client that does not want to go is the front proxy's to cut.
     */
    close: boolean;
  }
  /** The client left before the body was whole. Whatever is answered, nobody hears it. */
  | { type: "gone" };

/** Bounds of {@link readBody}; the defaults are in `limits.ts`. */
export interface ReadBodyOptions {
  /** Beyond: 413. */
  bytesMax: number;
  /** No byte for this long: 408. A body of up to 64 KiB must be whole in this time. */
  progressMs: number;
  /** The whole body takes longer: 408. */
  totalMs: number;
  /** Of the process: one timer for all bodies that are being read. */
  deadlines: Deadlines;
  now: MonotonicNow;
}

/**
 * A body that declares at most this many bytes is read in one go, which costs
 * 12.5 us a request instead of the 17.8 of a stream reader (1.2 kB, Deno 2.9.6).
 * Its progress cannot be seen then, so it has `progressMs` in all; 4.4 kB a
 * second is enough to make it.
 */
const ONE_READ_BYTES_MAX = 64 * 1024;

/**
 * Reads the body of `request`, which must not have been read before.
 *
 * Refuses, as a value: a `Content-Type` that is not JSON (none at all is fine)
 * and a `Content-Encoding` other than identity with 415, a body that declares or
 * proves to be larger than `bytesMax` with 413, one that stops coming with 408,
 * and broken chunks with 400. Leaves no timer and no reader behind.
 */
export function readBody(
  request: Request,
  options: ReadBodyOptions,
): Promise<BodyOutcome> {
  const refused = checkHeaders(request.headers);
  if (refused !== null) return Promise.resolve(refused);
  const length = declaredLength(request.headers);
  if (length !== null && length > options.bytesMax) {
    return Promise.resolve(tooLarge(options.bytesMax));
  }
  return length !== null && length <= ONE_READ_BYTES_MAX
    ? readAtOnce(request, options)
    : readInPieces(request, options);
}

function checkHeaders(headers: Headers): BodyOutcome | null {
  const type = headers.get("content-type");
  if (type !== null && !isJsonType(type)) {
    return unsupported(
      "Unsupported 'Content-Type'. Send the body as JSON, with " +
        "'Content-Type: application/json'.",
    );
  }
  const encoding = headers.get("content-encoding");
  if (encoding === null || isIdentity(encoding)) return null;
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

function isIdentity(encoding: string): boolean {
  const name = encoding.trim().toLowerCase();
  return name === "" || name === "identity";
}

/** Bytes by `Content-Length`, or null for a chunked body. The server has refused malformed ones. */
function declaredLength(headers: Headers): number | null {
  const value = headers.get("content-length");
  if (value === null || !/^\d+$/.test(value)) return null;
  return Number(value);
}

function readAtOnce(
  request: Request,
  { deadlines, now, progressMs }: ReadBodyOptions,
): Promise<BodyOutcome> {
  return new Promise((resolve, reject) => {
    const end = () => deadlines.remove(deadline);
    const deadline = {
      expiresAtMs: now() + progressMs,
      expire() {
        end();
        resolve(tooSlow());
      },
    };
    deadlines.add(deadline);
    // A read that was given up fails when the answer is out; that says nothing new.
    request.bytes().then((bytes) => {
      end();
      resolve({ type: "body", bytes });
    }, (error) => {
      end();
      const outcome = outcomeOf(error);
      if (outcome === null) reject(error);
      else resolve(outcome);
    });
  });
}

async function readInPieces(
  request: Request,
  { bytesMax, progressMs, totalMs, deadlines, now }: ReadBodyOptions,
): Promise<BodyOutcome> {
  if (request.body === null) return { type: "body", bytes: new Uint8Array() };
  const reader = request.body.getReader();
  let stopped: BodyOutcome | null = null;
  const stop = (outcome: BodyOutcome) => {
    stopped ??= outcome;
    // Ends the pending read. It fails when the connection is lost, which is an end too.
    void reader.cancel().catch(() => {});
  };
  const totalAtMs = now() + totalMs;
  const deadline = {
    expiresAtMs: now() + Math.min(progressMs, totalMs),
    expire: () => stop(tooSlow()),
  };
  deadlines.add(deadline);
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (stopped !== null) return stopped;
      if (done) return { type: "body", bytes: join(pieces, size) };
      if (value.length === 0) continue;
      pieces.push(value);
      size += value.length;
      if (size > bytesMax) {
        stop(tooLarge(bytesMax));
      }
      deadline.expiresAtMs = Math.min(now() + progressMs, totalAtMs);
    }
  } catch (error) {
    const outcome = stopped ?? outcomeOf(error);
    if (outcome === null) throw error;
    return outcome;
  } finally {
    deadlines.remove(deadline);
  }
}

function join(
  pieces: Uint8Array<ArrayBuffer>[],
  size: number,
): Uint8Array<ArrayBuffer> {
  const [only] = pieces;
  if (pieces.length === 1 && only !== undefined) return only;
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/** What a failed read means; null when it is a mistake of ours, such as reading twice. */
function outcomeOf(error: unknown): BodyOutcome | null {
  if (!(error instanceof Error) || error instanceof TypeError) return null;
  const isGone = GONE.some((kind) => error instanceof kind);
  if (isGone) return { type: "gone" };
  return {
    type: "refused",
    error: new ApiError(
      "invalid_request",
      "The request body could not be read: its transfer encoding is broken.",
      { cause: error },
    ),
    close: true,
  };
}

/** What Deno's server throws from a body whose connection is lost. The first is the usual one. */
const GONE = [
  Deno.errors.BadResource,
  Deno.errors.ConnectionReset,
  Deno.errors.ConnectionAborted,
  Deno.errors.BrokenPipe,
  Deno.errors.UnexpectedEof,
  Deno.errors.Interrupted,
];

function tooSlow(): BodyOutcome {
  const error = new ApiError(
    "request_timeout",
    "The request body did not arrive in time.",
  );
  return { type: "refused", error, close: true };
}

function tooLarge(bytesMax: number): BodyOutcome {
  const error = new ApiError(
    "request_too_large",
    `The request body is too large. The limit is ${bytesMax} bytes.`,
  );
  return { type: "refused", error, close: true };
}

function unsupported(message: string): BodyOutcome {
  const error = new ApiError("unsupported_media_type", message);
  return { type: "refused", error, close: false };
}
