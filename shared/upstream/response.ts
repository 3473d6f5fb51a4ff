/** Reads bodies of responses of model servers. */
import { UpstreamError } from "./errors.ts";
import type { HttpConnection } from "./http_client.ts";
import type { ResponseHead } from "./http_framing.ts";
import { parseJson } from "./json.ts";
import type { Redact } from "./redact.ts";
import { refusalError } from "./refusal.ts";

/** The largest body of an error response. A longer one is not quoted. */
const REFUSAL_BYTES_MAX = 64 * 1024;

/** Reads a body to its end as UTF-8 text. `onPiece` is called before each read. */
export async function readText(
  response: HttpConnection,
  onPiece: () => void,
): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    onPiece();
    const piece = await response.read();
    if (piece === null) break;
    text += decoder.decode(piece, { stream: true });
  }
  return text + decoder.decode();
}

/** Reads the body of an error response, and returns the error for the caller. */
export async function readRefusal(
  { status, retryAfterMs }: ResponseHead,
  response: HttpConnection,
  redact: Redact,
): Promise<UpstreamError> {
  response.bytesLeft = REFUSAL_BYTES_MAX;
  let text = "";
  try {
    text = await readText(response, () => {});
  } catch (error) {
    // The body was cut or is too long. The status is enough, so only an abort is passed on.
    if (!(error instanceof UpstreamError)) throw error;
  }
  return refusalError({ status, body: parseJson(text), retryAfterMs }, redact);
}
