/**
 * What the body of an answer is: some servers ignore `stream`, in either direction, and
 * some send a wrong content type or none.
 */
import { Buffer } from "node:buffer";
import { isPlain } from "./http/content_coding.ts";
import type { AttemptDeadlines } from "./http/attempt_deadlines.ts";
import type { HttpConnection } from "./http/client.ts";
import type { ResponseHead } from "./http/framing.ts";
import type { AttemptProgress } from "./attempt.ts";

/** What the body of an answer is, by its first bytes; `page` is HTML. */
export type BodyForm = "events" | "json" | "page";

/** The first bytes of a body, and what it is. */
export interface BodyStart {
  /** Null if the body is empty; valid until the next read. */
  bytes: Uint8Array | null;
  /** What the bytes show; null if they do not, as those of a picture. */
  formOfBytes: BodyForm | null;
  /** What they show, else what the content type says, else JSON. */
  form: BodyForm;
}

/** The parts of a response that are needed to read its start. */
interface StartedResponse {
  connection: Pick<HttpConnection, "read">;
  deadlines: Pick<AttemptDeadlines, "arm">;
  head: Pick<ResponseHead, "contentType">;
}

/** If this many bytes do not show the form of a body, its content type decides. */
const TELLING_BYTES = 16;
/** This many bytes show text: samples of sound have some that no text has. */
const TEXT_BYTES = 64;
const OPENING_BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;
const QUOTE = 0x22;
const LESS_THAN = 0x3c;
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf] as const;
const EVENT = /^(data|event|id|retry)?:/;
const PAGE = /^<(!doctype html|html|head|body)/i;
const PAGE_TYPE = "text/html";
const LABELS: { readonly [contentType: string]: BodyForm } = {
  "text/event-stream": "events",
  [PAGE_TYPE]: "page",
};

/**
 * Reads enough of a body to tell what it is. The content type decides only where the
 * first bytes do not. If these come in pieces, they may be `betweenMs` apart.
 */
export async function readStart(
  { connection, deadlines, head: { contentType } }: StartedResponse,
  betweenMs?: number,
): Promise<BodyStart> {
  let bytes = await connection.read();
  let formOfBytes = shownBy(bytes, contentType);
  while (bytes !== null && formOfBytes === null && mayBeText(bytes)) {
    // A copy, since the next read takes the buffer.
    const before = new Uint8Array(bytes);
    if (betweenMs !== undefined) deadlines.arm("betweenTokens", betweenMs);
    const piece = await connection.read();
    bytes = piece === null ? before : Buffer.concat([before, piece]);
    formOfBytes = shownBy(bytes, contentType);
    if (piece === null) break;
  }
  return {
    bytes,
    formOfBytes,
    form: formOfBytes ?? LABELS[contentType] ?? "json",
  };
}

/** Counts the oddities that show before the body is read. */
export function noteOddities(
  { head: { contentType, contentEncoding } }: {
    head: Pick<ResponseHead, "contentType" | "contentEncoding">;
  },
  { form, progress }: {
    form: BodyForm;
    progress: Pick<AttemptProgress, "onOddity">;
  },
): void {
  if (form !== (LABELS[contentType] ?? "json")) {
    progress.onOddity("label_ignored", 1);
  }
  if (!isPlain(contentEncoding)) progress.onOddity("coding_unasked", 1);
}

/** What a body is that begins with these bytes; null if that does not show yet. */
function shownBy(
  bytes: Uint8Array | null,
  contentType: string,
): BodyForm | null {
  if (bytes === null) return null;
  const at = afterSpace(bytes, isMarked(bytes) ? BYTE_ORDER_MARK.length : 0);
  if (bytes[at] === OPENING_BRACE) {
    const next = bytes[afterSpace(bytes, at + 1)];
    const isObject = next === undefined || next === QUOTE ||
      next === CLOSING_BRACE;
    return isObject && isText(bytes) ? "json" : null;
  }
  const text = String.fromCharCode(...bytes.subarray(at, at + TELLING_BYTES));
  if (bytes[at] === LESS_THAN) {
    // Other texts and pictures begin like this, too.
    return contentType === PAGE_TYPE || PAGE.test(text) ? "page" : null;
  }
  return EVENT.test(text) ? "events" : null;
}

/** Whether more bytes may show the form of a body. */
const mayBeText = (bytes: Uint8Array) =>
  bytes.length < TELLING_BYTES && isText(bytes);

/** Whether the first bytes may be those of a text in UTF-8. */
export function isText(bytes: Uint8Array): boolean {
  const end = Math.min(bytes.length, TEXT_BYTES);
  for (let at = 0; at < end; at++) {
    const byte = bytes[at] ?? 0;
    const isOfText = (byte >= 0x20 || isSpace(byte)) && byte < 0xf5;
    if (!isOfText) return false;
  }
  return true;
}

function isMarked(bytes: Uint8Array): boolean {
  const [first, second, third] = BYTE_ORDER_MARK;
  return bytes[0] === first && bytes[1] === second && bytes[2] === third;
}

/** The index of the first byte from this one on that is no space. */
function afterSpace(bytes: Uint8Array, from: number): number {
  let at = from;
  while (isSpace(bytes[at])) at++;
  return at;
}

/** Whether JSON allows a byte between its values: space, tab, CR or LF. */
const isSpace = (byte: number | undefined) =>
  byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
