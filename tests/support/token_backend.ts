/**
 * A backend whose answer follows from the request: `seed` says what it says and
 * `max_tokens` how much. It counts what it makes, as the ledger to compare with.
 */
import type {
  Backend,
  BackendEvent,
} from "../../services/chat-worker/backends/backend.ts";
import { ApiError } from "@gateway/shared/openai/error";
import { text, usageOf } from "./scripted_backend.ts";
import { sleep } from "./wait_for.ts";

export interface TokenBackend extends Backend {
  /** Tokens made for a request, the latest call of it, by its seed. */
  readonly produced: ReadonlyMap<number, number>;
  /** Calls that have not ended. */
  readonly running: number;
}

export interface TokenBackendOptions {
  /** Pause before each token. */
  tokenMs: number;
  /** Fails before this token of a request; null: never. */
  failsAt?: (seed: number) => number | null;
}

/** Token `index` of the answer to the request with this seed. */
export function tokenOf(seed: number, index: number): string {
  return `${seed}.${index} `;
}

/** The whole answer. */
export function answerOf(seed: number, tokens: number): string {
  return Array.from({ length: tokens }, (_, index) => tokenOf(seed, index))
    .join("");
}

export function tokenBackend(options: TokenBackendOptions): TokenBackend {
  const produced = new Map<number, number>();
  let running = 0;
  return {
    name: "tokens",
    fingerprint: null,
    produced,
    get running() {
      return running;
    },
    async *complete(request, { signal }) {
      const seed = request.seed ?? 0;
      const tokens = request.max_tokens ?? 1;
      const failsAt = options.failsAt?.(seed) ?? null;
      produced.set(seed, 0);
      running += 1;
      try {
        for (let index = 0; index < tokens; index += 1) {
          await sleep(options.tokenMs);
          signal.throwIfAborted();
          if (index === failsAt) {
            throw new ApiError("upstream_error", "The model server failed.");
          }
          produced.set(seed, index + 1);
          yield [text(tokenOf(seed, index))];
        }
        const last: BackendEvent[] = [
          { type: "finish", index: 0, reason: "stop" },
          { type: "usage", usage: usageOf(tokens) },
        ];
        yield last;
      } finally {
        running -= 1;
      }
    },
  };
}
