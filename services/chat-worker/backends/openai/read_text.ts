import type { HttpResponse } from "../http/response.ts";

/**
 * Reads a body to its end as UTF-8 text and lets the response go. Null, and the
 * connection closed, if it is longer than `bytesMax`. `onPiece` is told of each
 * piece. Rejects like {@link HttpResponse.read}.
 */
export async function readText(
  response: HttpResponse,
  bytesMax: number,
  onPiece: () => void,
): Promise<string | null> {
  const decoder = new TextDecoder();
  let text = "";
  let bytes = 0;
  for (;;) {
    const piece = await response.read();
    if (piece === null) break;
    bytes += piece.length;
    if (bytes > bytesMax) {
      response.close();
      return null;
    }
    text += decoder.decode(piece, { stream: true });
    onPiece();
  }
  response.release();
  return text + decoder.decode();
}
