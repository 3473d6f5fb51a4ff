/**
 * The answer to a forwarded request on the bus: a line of JSON, which the edge sends as
 * headers, then its body as it came.
 */
import { z } from "zod";
import { encodeHeadLine, HeadLineReader } from "../bus/head_line.ts";

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
  return encodeHeadLine(head);
}

/** Separates such a head from the body that follows it. */
export class AnswerHeadReader extends HeadLineReader<AnswerHead> {
  constructor() {
    super(headSchema, HEAD_BYTES_MAX);
  }
}
