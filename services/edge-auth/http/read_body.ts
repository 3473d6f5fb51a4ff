/**
 * Reads request bodies within bounds, and limits what refused ones cost: time, but none
 * of a key's limits.
 */
import { Buffer } from "node:buffer";
import type { Readable } from "node:stream";
import { freeBytes } from "@gateway/shared/bus/free_bytes";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines, Timed } from "@gateway/shared/process/deadlines";
import { remember } from "@gateway/shared/process/maps";
import {
  BODY_DEADLINES,
  BODY_PIECES,
  REFUSED_BODIES,
} from "@gateway/shared/limits";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { type BodyBudget, BodyShare } from "./body_budget.ts";
import { type BodyExchange, discard, type Exchange } from "./exchange.ts";
import { BODY_TURNS, type Turns } from "./turns.ts";

/** The memory and the time that bodies share. */
export interface HeldBodyBounds {
  bodyBudget: BodyBudget;
  deadlines: Pick<Deadlines, "add" | "remove">;
  now: MonotonicNow;
}

/** Bounds of bodies with JSON, which are read as a whole. */
export interface BodyBounds extends HeldBodyBounds {
  bodyBytesMax: number;
  refusedBodies: Pick<RefusedBodies, "charge" | "wait">;
}

/** A body that was read. Its share of the budget must be released once. */
export interface ReadBody {
  readonly bytes: Uint8Array;
  readonly share: BodyShare;
}

/**
 * Reads a body with JSON. Null if the client disconnects before its end. Rejects with
 * an `ApiError`: 415 not JSON or encoded, 413 too large, 408 too slow, 400 in too many
 * pieces, 429 or 503 a memory budget is used up, 429 too many refused bodies of the
 * key.
 */
export async function readBody(
  exchange: BodyExchange,
  keyId: string,
  bounds: BodyBounds,
): Promise<ReadBody | null> {
  const { headers } = exchange;
  await bounds.refusedBodies.wait(keyId, bounds.deadlines);
  // 0 for a chunked body. `node:http` refuses malformed values.
  const length = Number(headers["content-length"] ?? 0);
  requireJson(headers);
  const { bodyBytesMax, bodyBudget, refusedBodies, deadlines, now } = bounds;
  if (length > bodyBytesMax) throw tooLarge(bodyBytesMax);
  let reader: BodyReader | null = null;
  let refusedEarly: ApiError | null = null;
  const share = new BodyShare(bodyBudget, {
    keyId,
    refuse: (error) => {
      if (reader === null) refusedEarly = error;
      else reader.refuse(error);
    },
  });
  const noRoom = length > 0
    ? await bodyBudget.reserve(share, length, bounds)
    : null;
  const early = noRoom ?? refusedEarly;
  if (early !== null) {
    share.release();
    throw early;
  }
  return await new Promise((resolve, reject) => {
    reader = new BodyReader(exchange.openBody(), {
      bodyBytesMax,
      bodyBudget,
      refusedBodies,
      deadlines,
      now,
      turns: exchange.turns,
      share,
      length,
      resolve,
      reject,
    });
  });
}

/** What the reader of one body needs, and whom it tells. */
interface ReaderOptions extends BodyBounds {
  readonly turns: Pick<Turns, "took">;
  readonly share: BodyShare;
  /** The length as the client stated it; 0: unknown. */
  readonly length: number;
  readonly resolve: (body: ReadBody | null) => void;
  readonly reject: (error: ApiError) => void;
}

/** Collects the pieces of one body. */
class BodyReader {
  readonly #body: Readable;
  readonly #options: ReaderOptions;
  readonly #deadline: BodyDeadline;
  /** The pieces of a body of unknown size. */
  readonly #pieces: Uint8Array[] = [];
  /** A body of known size that came in more than one piece. */
  #whole: Uint8Array | null = null;
  /** How many pieces have arrived. */
  #count = 0;
  readonly #onData = this.#take.bind(this);
  readonly #onEnd = this.#complete.bind(this);
  readonly #onClose = this.#leave.bind(this);
  #size = 0;
  #isOver = false;

  constructor(body: Readable, options: ReaderOptions) {
    this.#body = body;
    this.#options = options;
    this.#deadline = new BodyDeadline(options, {
      totalMs: BODY_DEADLINES.totalMs,
      refuse: (error) => this.refuse(error),
    });
    body.on("data", this.#onData).once("end", this.#onEnd);
    body.once("close", this.#onClose);
    if (body.destroyed) this.#leave();
  }

  /** Refuses the body, wherever it is. */
  refuse(error: ApiError): void {
    if (!this.#end()) return;
    this.#options.share.release();
    this.#options.reject(error);
    discard(this.#body, this.#options.turns);
  }

  #take(piece: Uint8Array): void {
    const { bodyBytesMax, refusedBodies, share, bodyBudget } = this.#options;
    this.#size += piece.length;
    if (this.#size > bodyBytesMax) return this.refuse(tooLarge(bodyBytesMax));
    const most = BODY_PIECES.free + this.#size / BODY_PIECES.bytesMin;
    if (this.#count >= most) {
      const tookMs = this.#count * REFUSED_BODIES.pieceMs;
      refusedBodies.charge(share.keyId, tookMs);
      return this.refuse(tooManyPieces());
    }
    this.#deadline.progressed();
    const more = this.#size - share.bytes;
    const error = more > 0 ? bodyBudget.grow(share, more) : null;
    if (error !== null) return this.refuse(error);
    this.#count += 1;
    if (this.#size >= BODY_TURNS.bodyBytesMin) {
      this.#options.turns.took(this.#body, piece.length);
    }
    this.#keep(piece);
  }

  /**
   * Copies a piece, unless it is all of the body, to where that is whole at its end.
   */
  #keep(piece: Uint8Array): void {
    const { length } = this.#options;
    if (piece.length === length) {
      this.#whole = piece;
      return;
    }
    if (length === 0) this.#pieces.push(copyOf(piece));
    else {
      this.#whole ??= Buffer.allocUnsafe(length);
      this.#whole.set(piece, this.#size - piece.length);
    }
    freeBytes(piece);
  }

  #complete(): void {
    if (!this.#end()) return;
    const { share, resolve } = this.#options;
    const bytes = this.#whole ?? joined(this.#pieces);
    share.keep(bytes.length);
    resolve({ bytes, share });
  }

  #leave(): void {
    if (!this.#end()) return;
    this.#options.share.release();
    this.#options.resolve(null);
  }

  /** False if it has ended before. */
  #end(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    this.#deadline.remove();
    this.#body.off("data", this.#onData).off("end", this.#onEnd);
    this.#body.off("close", this.#onClose);
    return true;
  }
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

/** All bytes in one array, without a copy if they are. The pieces are used up. */
export function joined(pieces: readonly Uint8Array[]): Uint8Array {
  const [only = Buffer.of(), ...more] = pieces;
  if (more.length === 0) return only;
  const all = Buffer.concat(pieces);
  for (const piece of pieces) freeBytes(piece);
  return all;
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

/** How long a body may take, and what happens then. */
export interface DeadlineOptions {
  /** How long the whole body may take, in ms. */
  readonly totalMs: number;
  readonly refuse: (error: ApiError) => void;
}

/** When the next bytes of a body are due. Must be removed once. */
export class BodyDeadline implements Timed {
  #expiresAtMs: number;
  readonly #totalAtMs: number;
  readonly #bounds: HeldBodyBounds;
  readonly #refuse: (error: ApiError) => void;

  constructor(bounds: HeldBodyBounds, { totalMs, refuse }: DeadlineOptions) {
    this.#bounds = bounds;
    this.#refuse = refuse;
    const nowMs = bounds.now();
    this.#totalAtMs = nowMs + totalMs;
    this.#expiresAtMs = this.#dueMs(nowMs);
    bounds.deadlines.add(this);
  }

  /** When the body is late. */
  get expiresAtMs(): number {
    return this.#expiresAtMs;
  }

  /** Some bytes have arrived. */
  progressed(): void {
    this.#expiresAtMs = this.#dueMs(this.#bounds.now());
  }

  /** Refuses the body: 408. */
  expire(): void {
    const message = "The request body did not arrive in time.";
    this.#refuse(refusal("request_timeout", message));
  }

  /** The body has ended. */
  remove(): void {
    this.#bounds.deadlines.remove(this);
  }

  /** When the next bytes are due after some that have come now. */
  #dueMs(nowMs: number): number {
    return Math.min(nowMs + BODY_DEADLINES.progressMs, this.#totalAtMs);
  }
}

const { shareOfCore, burstMs, keysMax, leastMs, msPerByte } = REFUSED_BODIES;

/**
 * The processor time that parsing a body took, of which only the elapsed time is known:
 * no more than its bytes can cost. The rest is what other processes had meanwhile, or
 * the start of this one, and no caller owes it.
 */
export const parseWorkMs = (elapsedMs: number, bytes: number): number =>
  Math.min(elapsedMs, leastMs + bytes * msPerByte);

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
   * Undefined if a body may be read now.
   */
  wait(
    keyId: string,
    deadlines: Pick<Deadlines, "add">,
  ): Promise<void> | undefined {
    const waitMs = Math.min(this.#waitMs(keyId), REFUSED_BODIES.waitMs);
    return waitMs > 0 ? this.#waitFor(waitMs, keyId, deadlines) : undefined;
  }

  async #waitFor(
    waitMs: number,
    keyId: string,
    deadlines: Pick<Deadlines, "add">,
  ): Promise<void> {
    const expiresAtMs = this.now() + waitMs;
    await new Promise<void>((expire) => deadlines.add({ expiresAtMs, expire }));
    this.require(keyId);
  }

  #waitMs(keyId: string): number {
    return Math.max(0, Math.ceil(this.#owedMs(keyId) - burstMs / shareOfCore));
  }

  #owedMs(keyId: string): number {
    const paidAtMs = this.#paidAtMs.get(keyId);
    return paidAtMs === undefined ? 0 : Math.max(0, paidAtMs - this.now());
  }
}

const MS_PER_SECOND = 1_000;

/** 413, of a body or a part of one. */
export const tooLarge = (bytesMax: number, what = "request body") =>
  refusal(
    "request_too_large",
    `The ${what} is too large. The limit is ${bytesMax} bytes.`,
  );
/** 400 for a body that is divided too finely, see `BODY_PIECES`. */
export const tooManyPieces = () =>
  refusal(
    "invalid_request",
    "The request body arrived in too many pieces. " +
      "Send it with a 'Content-Length', or in larger chunks.",
  );
const tooManyRefused = (waitMs: number) =>
  refusal(
    "rate_limit_exceeded",
    "Too many requests of this API key were refused. " +
      `Please try again in ${waitMs / MS_PER_SECOND}s.`,
    { retryAfterMs: waitMs, reason: "request_bodies" },
  );

/**
 * The error of a body. Closes the connection, because the rest of the body would be
 * read as the next request.
 */
export function refusal(
  code: ErrorCode,
  message: string,
  options: { retryAfterMs?: number; reason?: "request_bodies" } = {},
): ApiError {
  const headers = { connection: "close" };
  return new ApiError(code, message, { ...options, headers });
}
