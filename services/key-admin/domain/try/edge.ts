import type { Log } from "@gateway/shared/process/log";
import { TRY_LIMITS } from "./key.ts";
import type { TryRequest } from "./request.ts";

/** Sends a request to the API as its callers do. `signal`: the person no longer waits. */
export type AskApi = (
  request: TryRequest,
  options: { key: string; signal: AbortSignal },
) => Promise<Response>;

/** Asks the API at a base URL. Where it cannot be reached or takes too long, the answer is an error in its own form; `edge_unreachable` logs the cause. */
export function createAskApi(edgeUrl: string, log: Log): AskApi {
  return async (request, { key, signal }) => {
    const timeout = AbortSignal.timeout(TRY_LIMITS.answerMs);
    try {
      return await fetch(`${edgeUrl}/chat/completions`, {
        method: "POST",
        headers: {
          "authorization": `Bearer ${key}`,
          "content-type": "application/json",
        },
        body: JSON.stringify(request),
        redirect: "error",
        signal: AbortSignal.any([signal, timeout]),
      });
    } catch (error) {
      // Nobody sees this answer.
      if (signal.aborted) return new Response(null, { status: 499 });
      log.error("edge_unreachable", { url: edgeUrl, error });
      return timeout.aborted
        ? refusal(504, "edge_timeout", "The API did not answer in time.")
        : refusal(502, "edge_unreachable", UNREACHABLE);
    }
  };
}

const UNREACHABLE =
  "The console cannot reach the API. Ask your operator to check EDGE_URL, the address at which key-admin finds it.";

const refusal = (status: number, code: string, message: string): Response =>
  Response.json({ error: { message, code } }, { status });
