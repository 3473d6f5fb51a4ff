import { BODY_PIECES } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";

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
    /** What reading it has cost, as bytes of an ordinary body. */
    costBytes: number;
  }
  /** The client left before the body was whole. Whatever is answered, nobody hears it. */
  | { type: "gone" };

/** What a failed read means; null when it is a mistake of ours, such as reading twice. */
export function outcomeOf(error: unknown): BodyOutcome | null {
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
    costBytes: 0,
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

/** It stopped coming, or takes too long: 408. */
export function tooSlow(): BodyOutcome {
  const error = new ApiError(
    "request_timeout",
    "The request body did not arrive in time.",
  );
  return { type: "refused", error, close: true, costBytes: 0 };
}

/** It is larger than it may be: 413. */
export function tooLarge(bytesMax: number): BodyOutcome {
  const error = new ApiError(
    "request_too_large",
    `The request body is too large. The limit is ${bytesMax} bytes.`,
  );
  return { type: "refused", error, close: true, costBytes: 0 };
}

/** It came in so many pieces that reading it costs more than its bytes are worth: 400. */
export function tooManyPieces(pieces: number): BodyOutcome {
  const error = new ApiError(
    "invalid_request",
    "The request body came in too many pieces. Send it with a " +
      "'Content-Length', or in larger chunks.",
  );
  const costBytes = pieces * BODY_PIECES.bytesMin;
  return { type: "refused", error, close: true, costBytes };
}

/** It is not JSON as it stands: 415. */
export function unsupported(message: string): BodyOutcome {
  const error = new ApiError("unsupported_media_type", message);
  return { type: "refused", error, close: false, costBytes: 0 };
}
