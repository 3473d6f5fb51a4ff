/** Parses server-sent events by the WHATWG HTML standard, section 9.2.6. */
import { STREAM_LIMITS } from "@gateway/shared/limits";
import { invalidAnswer } from "./errors.ts";

const LINE_CHARS_MAX = STREAM_LIMITS.lineBytesMax;
const LINE_END = /\r\n|\n|\r/;
const FIELD = /^(data|event)(?:: ?|$)/;

/**
 * An incremental parser: `data: {"a":1}\n\n` calls `onEvent('{"a":1}', "")`. It takes
 * linear time, however small the pieces are. It must not be used after it has thrown.
 */
export class SseParser {
  readonly #onEvent: (data: string, name: string) => void;
  // Only a byte order mark at the very beginning is dropped; others belong to the data.
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #isFirst = true;
  /** A line that is not complete yet. */
  #line = "";
  /** The last piece ended with CR, so an LF at the start of the next one belongs to it. */
  #isAfterCr = false;
  #data: string | null = null;
  #name = "";

  /** `onEvent` is called for every event that has data, with its `event` field or `""`. */
  constructor(onEvent: (data: string, name: string) => void) {
    this.#onEvent = onEvent;
  }

  /** Parses the next bytes. Throws `upstream_invalid` if a line, or the data of an event, is too long. */
  push(bytes: Uint8Array): void {
    let text = this.#decoder.decode(bytes, { stream: true });
    if (text === "") return;
    if (this.#isFirst && text.startsWith("\ufeff")) text = text.slice(1);
    this.#isFirst = false;
    if (this.#isAfterCr && text.startsWith("\n")) text = text.slice(1);
    this.#isAfterCr = text.endsWith("\r");
    const [first = "", ...lines] = text.split(LINE_END);
    this.#keep(first);
    for (const line of lines) {
      this.#endLine();
      this.#keep(line);
    }
  }

  /**
   * Ends the stream and returns the data of a last event without its blank line, or
   * `""`. The standard drops it, but a caller that can validate it may use it.
   */
  end(): string {
    this.#keep(this.#decoder.decode());
    if (this.#line !== "") this.#endLine();
    return this.#data ?? "";
  }

  #keep(piece: string): void {
    this.#line += piece;
    checkLength(this.#line);
  }

  #endLine(): void {
    const line = this.#line;
    this.#line = "";
    if (line === "") return this.#dispatch();
    const [start, field] = FIELD.exec(line) ?? [];
    if (start === undefined) return;
    const value = line.slice(start.length);
    if (field === "event") {
      this.#name = value;
      return;
    }
    this.#data = this.#data === null ? value : `${this.#data}\n${value}`;
    checkLength(this.#data);
  }

  #dispatch(): void {
    if (this.#data !== null) this.#onEvent(this.#data, this.#name);
    this.#data = null;
    this.#name = "";
  }
}

function checkLength(text: string): void {
  if (text.length > LINE_CHARS_MAX) {
    throw invalidAnswer(`An event over ${LINE_CHARS_MAX} characters`);
  }
}
