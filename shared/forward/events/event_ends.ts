/**
 * Where the events of a stream end: after a blank line. A line ends with LF, CRLF or,
 * from a few servers, CR alone, and a stream may mix them:
 * https://html.spec.whatwg.org/multipage/server-sent-events.html, November 2026.
 */

const LF = 0x0a;
const CR = 0x0d;
/** How a line may end, for `split`. */
export const LINE_END = /\r\n|\n|\r/;
/** The ends of two lines, for `split`: of the last one of an event, and a blank one. */
export const BLANK_LINE = /(?:\r\n|\n|\r(?!\n)){2}/;
const ANY_BLANK_LINE = new RegExp(BLANK_LINE, "g");
/** An event that is not complete may be cut after this many bytes of its end. */
export const CUT_END_BYTES_MAX = 3;

/** Finds the ends of events in a text: fast where it has only the usual line ends. */
export class EventEnds {
  readonly #text: string;
  readonly #hasCr: boolean;

  constructor(text: string) {
    this.#text = text;
    this.#hasCr = text.includes("\r");
  }

  /** The index after the event at `from`, or -1 if its end has not come. */
  after(from: number): number {
    if (!this.#hasCr) {
      const blank = this.#text.indexOf("\n\n", from);
      return blank < 0 ? -1 : blank + 2;
    }
    ANY_BLANK_LINE.lastIndex = from;
    return ANY_BLANK_LINE.test(this.#text) ? ANY_BLANK_LINE.lastIndex : -1;
  }
}

/** Whether the last bytes end an event, so that another may follow. */
export function endsEvent(bytes: Uint8Array): boolean {
  const last = bytes.at(-1);
  if (last !== LF && last !== CR) return false;
  const isPair = last === LF && bytes.at(-2) === CR;
  const before = bytes.at(isPair ? -3 : -2);
  return before === LF || before === CR;
}

/** What an event lacks that has all of its lines, but no blank one. */
export function missingEnd(bytes: Uint8Array): string {
  const last = bytes.at(-1);
  // After a CR, an LF would only end the same line.
  if (last === CR) return "\r";
  return last === LF ? "\n" : "\n\n";
}

/** Whether a line may still be ended by the first byte of what follows. */
export const mayGoOn = (bytes: Uint8Array): boolean =>
  bytes[bytes.length - 1] === CR;

/** Whether bytes begin with the rest of a line end of which {@link mayGoOn} is true. */
export const goesOn = (bytes: Uint8Array): boolean => bytes[0] === LF;
