/**
 * Reads request bodies within bounds, and limits what refused ones cost: time, but none
 * of a key's limits.
 */
import { Buffer } from "node:buffer";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines, Timed } from "@gateway/shared/process/deadlines";
import { remember } from "@gateway/shared/process/maps";
import {
  BODY_DEADLINES,
  BODY_PIECES,
  REFUSED_BODIES,
} from "@gateway/shared/limits";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { discard, type Exchange } from "./exchange.ts";

export interface HeldBodyBounds {
  bodyBudget: ReturnType<typeof createBodyBudget>;
  deadlines: Pick<Deadlines, "add" | "remove">;
  now: MonotonicNow;
}

export interface BodyBounds extends HeldBodyBounds {
  bodyBytesMax: number;
  refusedBodies: Pick<RefusedBodies, "charge" | "wait">;
}

/**
 * Null if the client disconnects before its end. Rejects with an `ApiError`: 415 not
 * JSON or encoded, 413 too large, 408 too slow, 400 in too many pieces, 429 or 503 a
 * memory budget is used up, 429 too many refused bodies of the key.
 */
export async function readBody(
  { headers, openBody }: Pick<Exchange, "headers" | "openBody">,
  keyId: string,
  bounds: BodyBounds,
): Promise<Uint8Array | null> {
  await bounds.refusedBodies.wait(keyId, bounds.deadlines);
  // 0 for a chunked body. `node:http` refuses malformed values.
  const length = Number(headers["content-length"] ?? 0);
  requireJson(headers);
  const { bodyBytesMax: bytesMax } = bounds;
  if (length > bytesMax) throw tooLarge(bytesMax);
  const body = openBody();
  return await new Promise((resolve, reject) => {
    const pieces: Uint8Array[] = [];
    let size = 0;
    const end = (settle: () => void) => {
      body.off("data", onData).off("end", onEnd).off("close", onClose);
      held.release();
      settle();
    };
    const refuse = (error: ApiError) => {
      end(() => reject(error));
      discard(body);
    };
    const onData = (piece: Uint8Array) => {
      size += piece.length;
      if (size > bytesMax) return refuse(tooLarge(bytesMax));
      if (pieces.length >= BODY_PIECES.free + size / BODY_PIECES.bytesMin) {
        const tookMs = pieces.length * REFUSED_BODIES.pieceMs;
        bounds.refusedBodies.charge(keyId, tookMs);
        return refuse(tooManyPieces());
      }
      held.progressed();
      if (piece.length === length) return void pieces.push(piece);
      const error = bounds.bodyBudget.grow(held, piece.length);
      if (error !== null) return refuse(error);
      pieces.push(copyOf(piece));
    };
    const onEnd = () => end(() => resolve(joined(pieces)));
    const onClose = () => end(() => resolve(null));
    const { totalMs } = BODY_DEADLINES;
    const held = new HeldBody(bounds, { keyId, totalMs, refuse });
    body.on("data", onData).once("end", onEnd).once("close", onClose);
    if (body.destroyed) onClose();
  });
}

/**
 * A small piece may be a view of a large buffer. This is one of the pool of `Buffer`,
 * or an array of its own.
 */
export function copyOf(piece: Uint8Array): Uint8Array {
  const copy = Buffer.allocUnsafe(piece.length);
  copy.set(piece);
  return copy;
}

/** All bytes in one array, without a copy if they are. */
export function joined(pieces: readonly Uint8Array[]): Uint8Array {
  const [only = Buffer.of(), ...more] = pieces;
  return more.length === 0 ? only : Buffer.concat(pieces);
}

const JSON_TYPE = /^(|application\/json|[^\s/]+\/[^\s/]+\+json)$/;
const NO_ENCODING = /^\s*(identity)?\s*$/i;

/** Refuses types other than JSON, but not an absent one, and encoded bodies. */
function requireJson(headers: Exchange["headers"]): void {
  const [type = ""] = (headers["content-type"] ?? "").split(";", 1);
  if (!JSON_TYPE.test(type.trim().toLowerCase())) {
    const instead =
      "Send the body as JSON, with 'Content-Type: application/json'.";
    throw unsupported("Content-Type", instead);
  }
  if (!NO_ENCODING.test(headers["content-encoding"] ?? "")) {
    throw unsupported("Content-Encoding", "Send the body without compression.");
  }
}

const unsupported = (header: string, instead: string) =>
  new ApiError("unsupported_media_type", `Unsupported '${header}'. ${instead}`);

/**
 * A body that is being read: what it holds of the budget, and when its next bytes are
 * due. Must be released once.
 */
export class HeldBody implements Timed {
  bytes = 0;
  expiresAtMs = Infinity;
  readonly #totalAtMs: number;

  constructor(
    readonly bounds: HeldBodyBounds,
    readonly of: {
      readonly keyId: string;
      readonly totalMs: number;
      /** Called when it is late, or a newer body needs its memory. */
      readonly refuse: (error: ApiError) => void;
    },
  ) {
    const nowMs = bounds.now();
    this.#totalAtMs = nowMs + of.totalMs;
    this.progressed(nowMs);
    bounds.deadlines.add(this);
  }

  progressed(nowMs = this.bounds.now()): void {
    const dueMs = nowMs + BODY_DEADLINES.progressMs;
    this.expiresAtMs = Math.min(dueMs, this.#totalAtMs);
  }

  expire(): void {
    const message = "The request body did not arrive in time.";
    this.of.refuse(refusal("request_timeout", message));
  }

  release(): void {
    this.bounds.deadlines.remove(this);
    this.bounds.bodyBudget.release(this);
  }
}

const SHARE_OF_KEY = 1 / 4;

/**
 * Bounds the bytes of bodies that are held. A body beyond its key's share is refused
 * (429). If the process has no room, the oldest is (503): slow senders keep out nobody.
 */
export function createBodyBudget({ bodiesBytesMax, bodyBytesMax }: {
  bodiesBytesMax: number;
  bodyBytesMax: number;
}) {
  const processBytesMax = Math.max(bodiesBytesMax, bodyBytesMax);
  const keyBytesMax = Math.max(bodiesBytesMax * SHARE_OF_KEY, bodyBytesMax);
  const bodies = new Set<HeldBody>();
  const bytesByKey = new Map<string, number>();
  let processBytes = 0;

  const resize = (body: HeldBody, by: number) => {
    const { keyId } = body.of;
    body.bytes += by;
    processBytes += by;
    const ofKey = (bytesByKey.get(keyId) ?? 0) + by;
    if (ofKey > 0) bytesByKey.set(keyId, ofKey);
    else bytesByKey.delete(keyId);
  };
  return {
    get bytes(): number {
      return processBytes;
    },
    /**
     * Counts more bytes of a body. Returns the refusal if there is no room for them.
     */
    grow(body: HeldBody, bytes: number): ApiError | null {
      const ofKey = (bytesByKey.get(body.of.keyId) ?? 0) + bytes;
      if (ofKey > keyBytesMax) return keyIsFull();
      while (processBytes + bytes > processBytesMax) {
        const [oldest = body] = bodies;
        if (oldest === body) return processIsFull();
        oldest.of.refuse(processIsFull());
      }
      bodies.add(body);
      resize(body, bytes);
      return null;
    },
    release(body: HeldBody): void {
      bodies.delete(body);
      resize(body, -body.bytes);
    },
  };
}

const { shareOfCore, burstMs, keysMax } = REFUSED_BODIES;

/**
 * Limits the time that refused bodies of a key may take: a fortieth of a core, with
 * bursts of 50 ms.
 */
export class RefusedBodies {
  /** When the time that each key has spent will be paid off. */
  readonly #paidAtMs = new Map<string, number>();

  constructor(readonly now: MonotonicNow) {}

  charge(keyId: string, tookMs: number): void {
    const paidAtMs = this.now() + this.#owedMs(keyId) + tookMs / shareOfCore;
    remember(this.#paidAtMs, {
      key: keyId,
      value: paidAtMs,
      sizeMax: keysMax,
    });
  }

  /** Throws `rate_limit_exceeded` if no body of the key may be read now. */
  require(keyId: string): void {
    const waitMs = this.#waitMs(keyId);
    if (waitMs > 0) throw tooManyRefused(waitMs);
  }

  /**
   * As `require`, but after a delay, which slows down a client that retries at once.
   */
  async wait(keyId: string, deadlines: Pick<Deadlines, "add">): Promise<void> {
    const waitMs = Math.min(this.#waitMs(keyId), REFUSED_BODIES.waitMs);
    if (waitMs === 0) return;
    const expiresAtMs = this.now() + waitMs;
    await new Promise<void>((expire) => deadlines.add({ expiresAtMs, expire }));
    this.require(keyId);
  }

  #waitMs(keyId: string): number {
    return Math.max(0, Math.ceil(this.#owedMs(keyId) - burstMs / shareOfCore));
  }

  #owedMs(keyId: string): number {
    return Math.max(0, (this.#paidAtMs.get(keyId) ?? 0) - this.now());
  }
}

const MS_PER_SECOND = 1_000;
const IN_A_SECOND = { retryAfterMs: MS_PER_SECOND } as const;

export const tooLarge = (bytesMax: number, what = "request body") =>
  refusal(
    "request_too_large",
    `The ${what} is too large. The limit is ${bytesMax} bytes.`,
  );
export const tooManyPieces = () =>
  refusal(
    "invalid_request",
    "The request body arrived in too many pieces. " +
      "Send it with a 'Content-Length', or in larger chunks.",
  );
const keyIsFull = () =>
  refusal(
    "concurrency_limit_exceeded",
    "This API key is sending too many bytes of request bodies at the same " +
      "time. Please try again in 1s.",
    { ...IN_A_SECOND, reason: "request_bodies" },
  );
const processIsFull = () =>
  refusal(
    "overloaded",
    "The service has no room for this request body at the moment. " +
      "Please try again shortly.",
    IN_A_SECOND,
  );
const tooManyRefused = (waitMs: number) =>
  refusal(
    "rate_limit_exceeded",
    "Too many requests of this API key were refused. " +
      `Please try again in ${waitMs / MS_PER_SECOND}s.`,
    { retryAfterMs: waitMs, reason: "request_bodies" },
  );

/**
 * Closes the connection, because the rest of the body would be read as the next
 * request.
 */
export function refusal(
  code: ErrorCode,
  message: string,
  options: { retryAfterMs?: number; reason?: "request_bodies" } = {},
): ApiError {
  const headers = { connection: "close" };
  return new ApiError(code, message, { ...options, headers });
}
