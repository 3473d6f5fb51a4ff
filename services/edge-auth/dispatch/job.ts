/** Publishes jobs on the bus: small ones in one message, large ones in acknowledged pieces. */
import {
  encodeJob,
  encodePiece,
  encodeRequest,
  JOB_VERSION,
  type JobMessage,
  pieceCount,
} from "@gateway/shared/bus/job";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { chatBodySubject } from "@gateway/shared/bus/subjects";
import { BUS_LIMITS } from "@gateway/shared/limits";
import type { ChatRequest } from "@gateway/shared/openai/chat";

/** A request to be run. */
export interface ChatJob {
  requestId: string;
  /** The key it belongs to. */
  keyId: string;
  request: ChatRequest;
  /** W3C trace context. */
  traceparent?: string;
}

/** A worker has this long to acknowledge a piece. */
const PIECE_TIMEOUT_MS = 2_000;

/**
 * Encodes an offer. A large request is not in the message but in `body`, which is sent
 * after a worker has accepted the job. `large` is the body of an earlier offer, since
 * it is slow to encode.
 */
export function encodeOffer(
  { request, traceparent }: ChatJob,
  { attempt, deadlineMs, large }: {
    attempt: number;
    deadlineMs: number;
    large: Uint8Array | null;
  },
): { message: Uint8Array; body: Uint8Array | null } {
  const envelope: JobMessage = {
    version: JOB_VERSION,
    attempt,
    deadlineMs: Math.max(1, Math.ceil(deadlineMs)),
    ...(traceparent === undefined ? {} : { traceparent }),
  };
  if (large === null) {
    const message = encodeJob({ ...envelope, request });
    if (message.length <= BUS_LIMITS.jobBytesMax) {
      return { message, body: null };
    }
  }
  const bytes = large ?? encodeRequest(request);
  const body = { bytes: bytes.length, pieces: pieceCount(bytes.length) };
  return { message: encodeJob({ ...envelope, body }), body: bytes };
}

/**
 * Sends the pieces of a large request, several at a time, each acknowledged, while
 * `isWanted` returns true. Rejects if the worker does not acknowledge one.
 */
export async function sendBody(
  bus: Pick<BusLink, "request">,
  body: Uint8Array,
  { requestId, attempt, workerId, isWanted }: {
    requestId: string;
    attempt: number;
    workerId: string;
    isWanted: () => boolean;
  },
): Promise<void> {
  const subject = chatBodySubject(workerId, requestId);
  const pieces = pieceCount(body.length);
  let next = 0;
  const sendSome = async () => {
    while (next < pieces && isWanted()) {
      const piece = encodePiece(body, attempt, next++);
      await bus.request(subject, piece, { timeoutMs: PIECE_TIMEOUT_MS });
    }
  };
  await Promise.all(
    Array.from({ length: BUS_LIMITS.piecesInFlight }, sendSome),
  );
}
