/**
 * Random texts of JSON and of event streams, as clients and servers of any make might
 * write them: what parsing and writing again would change is in them.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { seededRandom } from "../support/seeded_random.ts";

/** As they stand in JSON: none is what `JSON.stringify` would write. */
const NUMBERS = [
  "1.0",
  "-0",
  "1e5",
  "2E-07",
  "0.1000",
  "12345678901234567890",
  "3.141592653589793238462643383279",
  "1E400",
];
const STRINGS = [
  "",
  "text",
  "caf\\u00e9 café",
  "\\ud83d\\ude00 😀",
  "\\ud800 alone",
  'line\\nend \\/ \\\\ \\" quoted',
  "data: x\\n\\n",
  "[DONE] } ] {",
  "日本語\u2028\u2029\u007f",
  "\\u0000",
];
const SPACES = ["", "", "", "", " ", "\n  ", "\t", "\r\n"];
const DEPTH_MAX = 4;
const WIDTH_MAX = 4;

/** The line ends that a stream may have. */
const LINE_ENDS = ["\n", "\n", "\r\n", "\r"];
/** Lines of events that mean nothing to a gateway. */
const STRAY_EVENTS = [
  ": a comment",
  ":",
  'event: ping\ndata: {"type": "ping"}',
  "retry: 3000",
  "id: 7\nevent: x.unknown\ndata: no JSON",
  "data",
  "event: x.unknown\ndata:\ndata: \u2028 é",
  "",
];

/** Texts that depend on nothing but a seed. */
export class RandomTexts {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = seededRandom(seed);
  }

  /** A whole number from 0 on, and below `bound`. */
  below(bound: number): number {
    return Math.floor(this.#random() * bound);
  }

  /** One of these. */
  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] ?? assert.fail("an empty list");
  }

  /** A value of JSON as it may be written. */
  value(depth = 0): string {
    const kinds = depth < DEPTH_MAX ? 6 : 4;
    switch (this.below(kinds)) {
      case 0:
        return this.pick(NUMBERS);
      case 1:
        return this.pick(["true", "false", "null"]);
      case 2:
      case 3:
        return `"${this.pick(STRINGS)}"`;
      case 4:
        return `[${this.#list(() => this.value(depth + 1))}]`;
      default:
        return this.object([], depth);
    }
  }

  /**
   * An object with these members, each written as `"name":value`, in any order and
   * among others that nobody knows.
   */
  object(members: readonly string[] = [], depth = 0): string {
    const all = [...members];
    for (let more = this.below(WIDTH_MAX); more > 0; more--) {
      // Such a name may occur twice.
      const name = `"x_${this.below(9)}${this.pick(["", "\\u0061", "é"])}"`;
      const member = `${name}${this.space()}:${this.space()}`;
      all.splice(
        this.below(all.length + 1),
        0,
        member + this.value(depth + 1),
      );
    }
    return `{${this.space()}${all.join(`${this.space()},${this.space()}`)}}`;
  }

  /** White space that JSON allows, mostly none. */
  space(): string {
    return this.pick(SPACES);
  }

  /**
   * A stream with these events, each of lines that end with `\n`, in this order: with
   * others among them, and with its own line ends. `longest` bounds one of the others.
   * Some servers leave out the last blank line, which is then `missing`.
   */
  stream(
    events: readonly string[],
    longest = 0,
  ): { sent: Buffer; missing: string } {
    const long = longest === 0
      ? []
      : [`event: x.long\ndata: ${"é".repeat(longest / 2)}`];
    const all = events.flatMap((event) => [...this.#strays(), event]);
    all.splice(this.below(events.length), 0, ...long);
    const end = this.pick(LINE_ENDS);
    const own = this.pick(["\n\n", "\n\n", "\n", ""]);
    const text = (all.join("\n\n") + own).replaceAll("\n", end);
    // The last half of a CRLF is enough.
    const last = end.slice(-1);
    const missing = { "\n\n": "", "\n": last, "": "\n\n" }[own];
    return { sent: Buffer.from(text), missing: missing ?? "" };
  }

  /** The same bytes in pieces, which may end within a character or a line end. */
  pieces(bytes: Buffer): Buffer[] {
    const longest = this.pick([3, 40, 1_000, 100_000]);
    const pieces: Buffer[] = [];
    // Pieces of a few bytes of a long text would be too many.
    const most = Math.max(longest, Math.ceil(bytes.length / 50));
    for (let at = 0; at < bytes.length;) {
      const to = at + 1 + this.below(most);
      pieces.push(bytes.subarray(at, to));
      at = to;
    }
    return pieces;
  }

  #strays(): string[] {
    const count = Math.max(0, this.below(5) - 2);
    return Array.from({ length: count }, () => this.pick(STRAY_EVENTS));
  }

  #list(make: () => string): string {
    const count = this.below(WIDTH_MAX);
    return Array.from({ length: count }, make)
      .join(`${this.space()},${this.space()}`);
  }
}
