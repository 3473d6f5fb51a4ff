/**
 * The answer to a forwarded request on the bus: a line of JSON, which the edge sends as
 * headers, then its body as it came.
 */
import { Buffer } from "node:buffer";
import * as z from "zod";
import { parsePayload } from "../bus/frame.ts";

const LINE_END = 0x0a;
const HEAD_BYTES_MAX = 16 * 1024;

const value = z.string().regex(/^[\x20-\x7e]{0,2000}$/);
const headSchema = z.object({
  /** The media type as the server stated it. */
  content_type: value,
  /**
   * The length of the body in bytes; absent for events, of which nobody knows how many
   * follow.
   */
  length: z.int().min(0).exactOptional(),
  /** Headers of the server that pass, by name in lower case. */
  headers: z.record(z.string(), value),
});

/** What the edge answers with before the body. */
export type AnswerHead = z.infer<typeof headSchema>;

/** Returns the line that precedes the body. */
export function encodeAnswerHead(head: AnswerHead): string {
  return `${JSON.stringify(head)}\n`;
}

/** Separates the head of an answer from its body. Bytes may arrive cut anywhere. */
export class AnswerHeadReader {
  #line: Uint8Array = new Uint8Array();

  /**
   * Takes the next bytes. Returns the head and those that follow it, null as long as it
   * is not complete, or `invalid`. Must not be called after that.
   */
  push(
    bytes: Uint8Array,
  ): { head: AnswerHead; rest: Uint8Array } | "invalid" | null {
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
