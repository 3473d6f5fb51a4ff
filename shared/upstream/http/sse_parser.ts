/** Parses server-sent events by the WHATWG HTML standard, section 9.2.6. */
import { STREAM_LIMITS } from "../../limits.ts";
import { unsupportedAnswer } from "./errors.ts";

const CARRIAGE_RETURN = 0x0d;
const DATA = "data: ";

/**
 * An incremental parser: `data: {"a":1}\n\n` calls `onEvent('{"a":1}', "")`. It takes
 * linear time, however small the pieces are. A CR alone ends no line, as it may by the
 * standard: no server uses that. It must not be used after it has thrown.
 */
export class SseParser {
  // Deno's decoder would drop a byte order mark at the start of any piece.
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #isFirst = true;
  #line = "";
  #data: string | null = null;
  #name = "";
  /**
   * Whether the incomplete line is a comment. A flag, because looking at a long line
   * copies it.
   */
  #isComment = false;

  /**
   * `onEvent` gets every event that has data, with its name or `""`. `charsMax` bounds
   * a line and an event.
   */
  constructor(
    readonly onEvent: (data: string, name: string) => void,
    readonly charsMax: number = STREAM_LIMITS.lineBytesMax,
  ) {}

  /** Characters that are kept because their line or event is not complete yet. */
  get pendingChars(): number {
    return this.#line.length + (this.#data?.length ?? 0);
  }

  /** Part of an event has arrived, and not only of a comment. */
  get isInEvent(): boolean {
    return this.#data !== null || (this.#line !== "" && !this.#isComment);
  }

  /**
   * Parses the next bytes. Throws `unsupported` if a line, or the data of an
   * event, is too long.
   */
  push(bytes: Uint8Array): void {
    const text = this.#decoder.decode(bytes, { stream: true });
    const isMarked = this.#isFirst && text.startsWith("\ufeff");
    if (text !== "") this.#isFirst = false;
    let from = isMarked ? 1 : 0;
    let end = text.indexOf("\n", from);
    while (end >= 0) {
      const piece = text.slice(from, end);
      if (this.#line !== "") this.#keep(piece);
      this.#endLine(this.#line === "" ? piece : this.#line);
      from = end + 1;
      end = text.indexOf("\n", from);
    }
    if (from < text.length) this.#keep(text.slice(from));
  }

  /**
   * The data of a last event without its blank line, or `""`. The standard drops it; a
   * caller may validate it.
   */
  end(): string {
    this.#keep(this.#decoder.decode());
    if (this.#line !== "") this.#endLine(this.#line);
    return this.#data ?? "";
  }

  #keep(piece: string): void {
    if (this.#line === "") this.#isComment = piece.startsWith(":");
    this.#line += piece;
    this.#checkLength(this.#line);
  }

  #endLine(text: string): void {
    this.#line = "";
    const isCrlf = text.charCodeAt(text.length - 1) === CARRIAGE_RETURN;
    const line = isCrlf ? text.slice(0, -1) : text;
    if (line === "") return this.#dispatch();
    this.#checkLength(line);
    // What nearly every line is.
    if (line.startsWith(DATA)) return this.#addData(line.slice(DATA.length));
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const from = line[colon + 1] === " " ? colon + 2 : colon + 1;
    const value = colon < 0 ? "" : line.slice(from);
    if (field === "event") this.#name = value;
    if (field === "data") this.#addData(value);
  }

  #addData(value: string): void {
    this.#data = this.#data === null ? value : `${this.#data}\n${value}`;
    this.#checkLength(this.#data);
  }

  #dispatch(): void {
    if (this.#data !== null) this.onEvent(this.#data, this.#name);
    this.#data = null;
    this.#name = "";
  }

  #checkLength(text: string): void {
    if (text.length > this.charsMax) {
      throw unsupportedAnswer(`An event over ${this.charsMax} characters`);
    }
  }
}
