import { invalidAnswer, truncatedAnswer } from "../upstream_error.ts";
import type { Connection } from "./connection.ts";
import {
  findHeadEnd,
  parseResponseHead,
  type ResponseHead,
} from "./response_head.ts";

/** Interim responses skipped before the final one. */
const INTERIM_RESPONSES_MAX = 16;
const SWITCHING_PROTOCOLS = 101;

/** The connection ended before the first byte of an answer: nothing is known of the request's fate. */
export class ConnectionLostError extends Error {
  override readonly name = "ConnectionLostError";
}

/** A response head and where in the connection's buffer the body begins. */
export interface HeadRead {
  head: ResponseHead;
  /** `[from, to)` of the buffer belongs to the body. */
  from: number;
  to: number;
}

const decoder = new TextDecoder();

/**
 * Reads up to the end of the first response head that is not interim. Rejects
 * with {@link ConnectionLostError}, or an `UpstreamError` when an answer began
 * and is cut or malformed.
 */
export async function readHead(connection: Connection): Promise<HeadRead> {
  const { buffer } = connection;
  let from = 0;
  let to = 0;
  let searchFrom = 0;
  let interim = 0;
  for (;;) {
    const end = findHeadEnd(buffer, searchFrom, to);
    if (end < 0) {
      if (to === buffer.length) {
        throw invalidAnswer(`Response head over ${buffer.length} bytes`);
      }
      // The blank line may have begun in what is there.
      searchFrom = Math.max(from, to - 3);
      to += await readSome(connection, to);
      continue;
    }
    const head = parseResponseHead(decoder.decode(buffer.subarray(from, end)));
    if (head.status >= 200) return { head, from: end, to };
    if (
      head.status === SWITCHING_PROTOCOLS || ++interim > INTERIM_RESPONSES_MAX
    ) {
      throw invalidAnswer(`Unexpected interim status ${head.status}`);
    }
    from = end;
    searchFrom = end;
  }
}

async function readSome(connection: Connection, at: number): Promise<number> {
  let bytes: number | null;
  try {
    bytes = await connection.read(at);
  } catch (cause) {
    if (at === 0) throw new ConnectionLostError("Connection lost", { cause });
    throw truncatedAnswer("Connection lost within the response head");
  }
  if (bytes !== null) return bytes;
  if (at === 0) throw new ConnectionLostError("Connection closed");
  throw truncatedAnswer("Connection closed within the response head");
}
