/** What a client asks for a request beside its body, by headers of the gateway. */
import type { Admission } from "../limits/admission.ts";
import type { Caller } from "../limits/callers/caller.ts";
import type { Exchange } from "../http/exchange.ts";
import { type KeepWish, readKeep } from "./keep_headers.ts";
import { readIsBatch } from "./priority_header.ts";
import { readTimeoutMs } from "./timeout_header.ts";

/** What is read of a call. */
interface ArrivedCall {
  readonly exchange: Pick<Exchange, "headers">;
  /** When it arrived, on the clock of the edge. */
  readonly startedAtMs: number;
}

/** What a client asks for. */
export interface Wishes {
  /** When it wants the request to end at the latest, on the clock of the edge. */
  readonly endsByMs: number;
  /** It waits behind the other requests of its account. */
  readonly isBatch: boolean;
  /** What it says of the keeping of the answer; null or absent: nothing. */
  readonly keep?: KeepWish | null | undefined;
}

/**
 * Reads the headers of a call. Rejects with the `ApiError` of a malformed one; but a
 * key without any rights hears of that instead.
 */
export function wishesOf(
  { exchange: { headers }, startedAtMs }: ArrivedCall,
  principal: Caller,
  { admission }: { admission: Pick<Admission, "modelsOf"> },
): Wishes | Promise<never> {
  try {
    return {
      endsByMs: startedAtMs + readTimeoutMs(headers),
      isBatch: readIsBatch(headers),
      keep: readKeep(headers),
    };
  } catch (error) {
    return admission.modelsOf(principal, null).then(() => {
      throw error;
    });
  }
}
