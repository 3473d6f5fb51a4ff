/**
 * The head of an answer that is not events of chat: a line of JSON before its bytes,
 * which the edge sends as headers.
 */
import { Buffer } from "node:buffer";
import type { z } from "zod";
import { parsePayload } from "./stream/frame.ts";

const LINE_END = 0x0a;

/** Returns the line that precedes the body. */
export function encodeHeadLine(head: object): string {
  return `${JSON.stringify(head)}\n`;
}

/** Separates the head of an answer from its body. Bytes may arrive cut anywhere. */
export class HeadLineReader<Head> {
  readonly #schema: z.ZodType<Head>;
  readonly #bytesMax: number;
  #line: Uint8Array = new Uint8Array();

  /** A head that does not match, or is longer than `bytesMax`, is invalid. */
  constructor(schema: z.ZodType<Head>, bytesMax: number) {
    this.#schema = schema;
    this.#bytesMax = bytesMax;
  }

  /**
   * Takes the next bytes. Returns the head and those that follow it, null as long as it
   * is not complete, or `invalid`. Must not be called after that.
   */
  push(bytes: Uint8Array): { head: Head; rest: Uint8Array } | "invalid" | null {
    const end = bytes.indexOf(LINE_END);
    const part = end < 0 ? bytes : bytes.subarray(0, end);
    this.#line = Buffer.concat([this.#line, part]);
    if (this.#line.length > this.#bytesMax) return "invalid";
    if (end < 0) return null;
    const head = parsePayload(this.#schema, this.#line);
    if (head === null) return "invalid";
    return { head, rest: bytes.subarray(end + 1) };
  }
}
