/** How many bytes of request bodies a process and each key may hold at a time. */
import { ApiError } from "@gateway/shared/openai/error";

/** A body that is being read. */
export interface HeldBody {
  readonly keyId: string;
  /** Of it, counted here. */
  bytes: number;
  /** Ends it and releases it: others need the room more. */
  readonly refuse: (error: ApiError) => void;
}

/** A key may hold this part of what the process may. */
const SHARE_OF_KEY = 1 / 4;
const RETRY_AFTER_MS = 1_000;

/**
 * Over the key's share the body that grows is refused (429). Where the process has
 * no room, the oldest body is refused (503): who sends slowly pays before who has
 * just begun.
 */
export class BodyBudget {
  readonly #processBytesMax: number;
  readonly #keyBytesMax: number;
  readonly #bodies = new Set<HeldBody>();
  readonly #bytesByKey = new Map<string, number>();
  #bytes = 0;

  /** One body of `bodyBytesMax` always has room. */
  constructor(
    { bodiesBytesMax, bodyBytesMax }: {
      bodiesBytesMax: number;
      bodyBytesMax: number;
    },
  ) {
    this.#processBytesMax = Math.max(bodiesBytesMax, bodyBytesMax);
    this.#keyBytesMax = Math.max(bodiesBytesMax * SHARE_OF_KEY, bodyBytesMax);
  }

  /** Bytes held now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Counts more bytes of a body. Returns the refusal where they are too many. */
  grow(body: HeldBody, bytes: number): ApiError | null {
    const ofKey = (this.#bytesByKey.get(body.keyId) ?? 0) + bytes;
    if (ofKey > this.#keyBytesMax) return keyIsFull();
    while (this.#bytes + bytes > this.#processBytesMax) {
      const [oldest = body] = this.#bodies;
      if (oldest === body) return processIsFull();
      oldest.refuse(processIsFull());
    }
    this.#bodies.add(body);
    this.#resize(body, bytes);
    return null;
  }

  release(body: HeldBody): void {
    this.#bodies.delete(body);
    this.#resize(body, -body.bytes);
  }

  #resize(body: HeldBody, by: number): void {
    body.bytes += by;
    this.#bytes += by;
    const ofKey = (this.#bytesByKey.get(body.keyId) ?? 0) + by;
    if (ofKey > 0) this.#bytesByKey.set(body.keyId, ofKey);
    else this.#bytesByKey.delete(body.keyId);
  }
}

function keyIsFull(): ApiError {
  return noRoom(
    "concurrency_limit_exceeded",
    "Too many bytes of request bodies of this API key at the same time. " +
      "Please try again in 1s.",
  );
}

function processIsFull(): ApiError {
  return noRoom(
    "overloaded",
    "The service has no room for this request body at the moment. " +
      "Please try again shortly.",
  );
}

function noRoom(
  code: "concurrency_limit_exceeded" | "overloaded",
  message: string,
): ApiError {
  const headers = { connection: "close" };
  return new ApiError(code, message, { retryAfterMs: RETRY_AFTER_MS, headers });
}
