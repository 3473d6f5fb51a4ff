/** How many bytes of request bodies a process and each key may hold at a time. */
import { ApiError } from "@gateway/shared/openai/error";

/** Bytes of one body. Must be released, however it ends. */
export interface HeldBody {
  /** It has come to its end, so it is no longer slow. */
  isWhole: boolean;
  /** Returns the refusal where this many bytes in all are too many. */
  grow(bytes: number): ApiError | null;
  release(): void;
}

export interface BodyBudget {
  /** Bytes held now. */
  readonly bytes: number;
  /** `refuse` is called when others need the room more: it must release the body. */
  hold(keyId: string, refuse: (error: ApiError) => void): HeldBody;
}

export interface BodyBudgetOptions {
  processBytesMax: number;
  keyBytesMax: number;
}

const RETRY_AFTER_MS = 1_000;

/**
 * Over the key's share the body that grows is refused (429). Where the process has
 * no room, the oldest body that is not whole yet is refused (503): who sends slowly
 * pays before who has just begun.
 */
export function createBodyBudget(
  { processBytesMax, keyBytesMax }: BodyBudgetOptions,
): BodyBudget {
  interface Entry {
    held: HeldBody;
    refuse: (error: ApiError) => void;
  }
  const entries = new Set<Entry>();
  const byKey = new Map<string, number>();
  let total = 0;

  /** Makes room by the oldest body that is not whole; false when that is `asking` or there is none. */
  const refuseOldest = (asking: Entry): boolean => {
    for (const entry of entries) {
      if (entry === asking) return false;
      if (entry.held.isWhole) continue;
      entry.refuse(processIsFull());
      return true;
    }
    return false;
  };

  return {
    get bytes() {
      return total;
    },
    hold(keyId, refuse) {
      let size = 0;
      const resize = (bytes: number) => {
        const ofKey = (byKey.get(keyId) ?? 0) + bytes - size;
        if (ofKey > 0) byKey.set(keyId, ofKey);
        else byKey.delete(keyId);
        total += bytes - size;
        size = bytes;
      };
      const held: HeldBody = {
        isWhole: false,
        grow(bytes) {
          const more = bytes - size;
          if ((byKey.get(keyId) ?? 0) + more > keyBytesMax) return keyIsFull();
          while (total + more > processBytesMax) {
            if (!refuseOldest(entry)) return processIsFull();
          }
          resize(bytes);
          return null;
        },
        release() {
          resize(0);
          entries.delete(entry);
        },
      };
      const entry = { held, refuse };
      entries.add(entry);
      return held;
    },
  };
}

function keyIsFull(): ApiError {
  return new ApiError(
    "concurrency_limit_exceeded",
    "Too many bytes of request bodies of this API key at the same time. " +
      "Please try again in 1s.",
    { retryAfterMs: RETRY_AFTER_MS, headers: { connection: "close" } },
  );
}

function processIsFull(): ApiError {
  return new ApiError(
    "overloaded",
    "The service has no room for this request body at the moment. " +
      "Please try again shortly.",
    { retryAfterMs: RETRY_AFTER_MS, headers: { connection: "close" } },
  );
}
