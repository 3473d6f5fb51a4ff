/** Requests of the page "Try it" to the API. */
import { Buffer } from "node:buffer";
import type { Log } from "@gateway/shared/process/log";
import { TRY_LIMITS } from "./key.ts";
import type { TryRequest } from "./chat_forms.ts";

/**
 * A request to an endpoint of the API: without a body, it only reads. With a file it is
 * sent as a form, otherwise as JSON.
 */
export interface ApiRequest {
  path: string;
  request?: TryRequest;
  file?: File | undefined;
  /** The part of a file to read. */
  range?: string | undefined;
  /** Its answer is kept, and this names the request if it is sent again. */
  once?: string | undefined;
  /** It removes what the path names. */
  isRemoval?: boolean;
}

/**
 * Sends a request to the API as its callers do. It is aborted by `signal` when the
 * person no longer waits.
 */
export type AskApi = (
  request: ApiRequest,
  options: { key: string; signal: AbortSignal },
) => Promise<Response>;

/**
 * Asks the API at a base URL. Where it cannot be reached or takes too long, the answer
 * is an error in its own form; `edge_unreachable` logs the cause.
 */
export function createAskApi(edgeUrl: string, log: Log): AskApi {
  return async (
    { path, request, file, range, once, isRemoval = false },
    { key, signal },
  ) => {
    const timeout = AbortSignal.timeout(TRY_LIMITS.answerMs);
    try {
      return await fetch(`${edgeUrl}${path}`, {
        headers: {
          "authorization": `Bearer ${key}`,
          ...file === undefined && { "content-type": "application/json" },
          ...range !== undefined && { range },
          ...once !== undefined && { "idempotency-key": once },
        },
        ...isRemoval && { method: "DELETE" },
        ...request && {
          method: "POST",
          body: file === undefined
            ? JSON.stringify(request)
            : formOf(request, file),
        },
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

function formOf(request: TryRequest, file: File): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(request)) {
    form.set(name, String(value));
  }
  form.set("file", file);
  return form;
}

const UNREACHABLE =
  "The console cannot reach the API. Ask your operator to check EDGE_URL, the address at which key-admin finds it.";

const refusal = (status: number, code: string, message: string): Response =>
  Response.json({ error: { message, code } }, { status });

/** Room for the first pieces of a body. It doubles when it is full. */
const FIRST_BYTES = 4_096;

/**
 * Reads a whole body. Rejects with `tooLarge` once it has more bytes, and if it is cut.
 * Its pieces are copied, not kept: a piece of a byte takes hundreds of them.
 */
export async function wholeBody(
  body: ReadableStream<Uint8Array> | null,
  { bytesMax, tooLarge, signal }: {
    bytesMax: number;
    tooLarge: Error;
    signal?: AbortSignal;
  },
): Promise<Buffer<ArrayBuffer>> {
  let room = Buffer.alloc(Math.min(FIRST_BYTES, bytesMax));
  let bytes = 0;
  const sink = new WritableStream<Uint8Array>({
    write: (piece) => {
      const end = bytes + piece.length;
      if (end > bytesMax) throw tooLarge;
      if (end > room.length) {
        const larger = Buffer.alloc(Math.min(bytesMax, 2 * end));
        larger.set(room.subarray(0, bytes));
        room = larger;
      }
      room.set(piece, bytes);
      bytes = end;
    },
  });
  await body?.pipeTo(sink, { ...signal && { signal } });
  return room.subarray(0, bytes);
}
