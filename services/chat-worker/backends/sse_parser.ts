/**
 * Server-sent events out of a byte stream, as the WHATWG HTML standard, section
 * 9.2.6, describes it: a leading byte order mark is dropped; lines end with LF,
 * CR or CRLF; `:` starts a comment; several `data` lines of one event are joined
 * by LF; a blank line ends the event; `id` and `retry` mean nothing here. Beyond
 * the standard, `error: …` is `data: …` of an event of that name: servers of
 * llama.cpp ended broken answers so until 2025.
 *
 * The parser works on bytes and decodes one whole line at a time, so a character
 * split over two reads needs no care, and its bound is exact.
 */

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const SPACE = 0x20;
const DATA = new TextEncoder().encode("data");
const EVENT = new TextEncoder().encode("event");
const ERROR = new TextEncoder().encode("error");
const BYTE_ORDER_MARK = Uint8Array.of(0xef, 0xbb, 0xbf);

/** First size of the buffer for a line that came in pieces. It doubles when needed. */
const PENDING_BYTES_FIRST = 1024;

/** What {@link createSseParser} needs. */
export interface SseParserOptions {
  /** Bound of one line and of the joined data of one event, without line ends. */
  lineBytesMax: number;
  /** Called for every event that has data. `name` is the `event` field, or `""`. */
  onEvent: (data: string, name: string) => void;
}

/** An incremental parser. After it has thrown it must not be used again. */
export interface SseParser {
  /**
   * Takes the next bytes and calls `onEvent` for each event they complete. Keeps
   * no reference to `bytes`. Throws {@link SseLimitError}.
   */
  push(bytes: Uint8Array): void;
  /**
   * The data of the event that the end of the stream left without its blank
   * line, or null. The standard drops it; whoever knows what it must look like
   * may use it.
   */
  end(): string | null;
}

/** A line, or the data of one event, is longer than allowed. */
export class SseLimitError extends Error {
  override readonly name = "SseLimitError";
}

/**
 * Makes a parser. `data: {"a":1}\n\n` calls `onEvent('{"a":1}', "")`. Work is
 * linear in the number of bytes, however small the pieces are.
 */
export function createSseParser(options: SseParserOptions): SseParser {
  const { lineBytesMax, onEvent } = options;
  // Marks inside the data belong to it: only the one before everything is dropped.
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  /** The part of a line that earlier pushes brought. */
  let pending = new Uint8Array(0);
  let pendingBytes = 0;
  let isFirstLine = true;
  /** The last push ended with CR: an LF that comes first belongs to it. */
  let isAfterCr = false;
  let data: string | null = null;
  let dataBytes = 0;
  let name = "";

  const checkBound = (bytes: number) => {
    if (bytes <= lineBytesMax) return;
    throw new SseLimitError(
      `A line of the event stream exceeds ${lineBytesMax} bytes`,
    );
  };

  const keep = (bytes: Uint8Array, from: number, to: number) => {
    const length = pendingBytes + to - from;
    checkBound(length);
    if (length > pending.length) {
      const grown = new Uint8Array(
        Math.max(length, pending.length * 2, PENDING_BYTES_FIRST),
      );
      grown.set(pending.subarray(0, pendingBytes));
      pending = grown;
    }
    pending.set(bytes.subarray(from, to), pendingBytes);
    pendingBytes = length;
  };

  const dispatch = () => {
    if (data !== null) onEvent(data, name);
    data = null;
    dataBytes = 0;
    name = "";
  };

  const takeData = (bytes: Uint8Array, from: number, to: number) => {
    const value = decoder.decode(bytes.subarray(from, to));
    // The LF that joins counts too: a million empty data lines are not nothing.
    dataBytes += to - from + (data === null ? 0 : 1);
    checkBound(dataBytes);
    data = data === null ? value : `${data}\n${value}`;
  };

  const takeLine = (bytes: Uint8Array, from: number, to: number) => {
    if (isFirstLine) {
      isFirstLine = false;
      if (startsWith(bytes, from, to, BYTE_ORDER_MARK)) from += 3;
    }
    if (from === to) return dispatch();
    checkBound(to - from);
    const dataAt = valueAt(bytes, from, to, DATA);
    if (dataAt >= 0) return takeData(bytes, dataAt, to);
    const nameAt = valueAt(bytes, from, to, EVENT);
    if (nameAt >= 0) name = decoder.decode(bytes.subarray(nameAt, to));
    const errorAt = valueAt(bytes, from, to, ERROR);
    if (errorAt < 0) return;
    name = "error";
    takeData(bytes, errorAt, to);
  };

  const endLine = (bytes: Uint8Array, from: number, to: number) => {
    if (pendingBytes === 0) return takeLine(bytes, from, to);
    keep(bytes, from, to);
    const length = pendingBytes;
    pendingBytes = 0;
    takeLine(pending, 0, length);
  };

  return {
    push(bytes) {
      if (bytes.length === 0) return;
      let from = isAfterCr && bytes[0] === LF ? 1 : 0;
      isAfterCr = false;
      let lf = bytes.indexOf(LF, from);
      let cr = bytes.indexOf(CR, from);
      while (lf >= 0 || cr >= 0) {
        const isCr = cr >= 0 && (lf < 0 || cr < lf);
        const end = isCr ? cr : lf;
        endLine(bytes, from, end);
        from = end + 1;
        if (isCr) {
          if (from === bytes.length) isAfterCr = true;
          else if (bytes[from] === LF) from++;
          cr = bytes.indexOf(CR, from);
        }
        if (lf >= 0 && lf < from) lf = bytes.indexOf(LF, from);
      }
      if (from < bytes.length) keep(bytes, from, bytes.length);
    },
    end() {
      if (pendingBytes > 0) endLine(pending, 0, 0);
      const rest = data;
      data = null;
      return rest;
    },
  };
}

/** Where the value of the line's field starts when the field is `field`, else -1. */
function valueAt(
  bytes: Uint8Array,
  from: number,
  to: number,
  field: Uint8Array,
): number {
  if (!startsWith(bytes, from, to, field)) return -1;
  const at = from + field.length;
  if (at === to) return to;
  if (bytes[at] !== COLON) return -1;
  return bytes[at + 1] === SPACE && at + 1 < to ? at + 2 : at + 1;
}

function startsWith(
  bytes: Uint8Array,
  from: number,
  to: number,
  prefix: Uint8Array,
): boolean {
  if (to - from < prefix.length) return false;
  for (let i = 0; i < prefix.length; i++) {
    if (bytes[from + i] !== prefix[i]) return false;
  }
  return true;
}
