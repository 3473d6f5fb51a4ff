/**
 * The answer of a media job: a line of JSON, which the edge sends as headers, then its
 * body as it is.
 */
import { Buffer } from "node:buffer";
import * as z from "zod";
import { parsePayload } from "./frame.ts";

const LINE_END = 0x0a;
/** The headers of a file that its model server may set, besides its length. */
export const FILE_HEADERS = [
  "accept-ranges",
  "content-range",
  "etag",
  "last-modified",
] as const;
const HEAD_BYTES_MAX = 4_096;

const value = z.string().regex(/^[\x20-\x7e]{1,200}$/);
const headSchema = z.object({
  content_type: value,
  /** 206: the body is the part of a file that the client asked for. */
  status: z.literal([200, 206]).exactOptional(),
  headers: z.partialRecord(z.enum([...FILE_HEADERS, "content-length"]), value)
    .exactOptional(),
});

/** What the edge answers with before the body: its media type, status and headers. */
export type MediaHead = z.infer<typeof headSchema>;

/** Returns the line that precedes the body. */
export function encodeMediaHead(head: MediaHead): string {
  return `${JSON.stringify(head)}\n`;
}

/** Separates the head of an answer from its body. Bytes may arrive cut anywhere. */
export class MediaHeadReader {
  #line: Uint8Array = new Uint8Array();

  /**
   * Takes the next bytes. Returns the head and those that follow it, null as long as it
   * is not complete, or `invalid`. Must not be called after that.
   */
  push(
    bytes: Uint8Array,
  ): { head: MediaHead; rest: Uint8Array } | "invalid" | null {
    const end = bytes.indexOf(LINE_END);
    const part = end < 0 ? bytes : bytes.subarray(0, end);
    this.#line = Buffer.concat([this.#line, part]);
    if (this.#line.length > HEAD_BYTES_MAX) return "invalid";
    if (end < 0) return null;
    const head = parsePayload(headSchema, this.#line);
    if (head === null) return "invalid";
    return { head, rest: bytes.subarray(end + 1) };
  }
}
