/**
 * Looks into the events of a forwarded answer while they pass: where one ends, whether
 * the model has begun and ended, what was used. Only events with a usage or an error
 * are parsed; of the others, which are one for each token, a few characters are read.
 */
import { Buffer } from "node:buffer";
import { STREAM_LIMITS } from "../../limits.ts";
import { endOfString } from "../../openai/json_body.ts";
import type { Usage } from "../../openai/completion.ts";
import type { ForwardName } from "../endpoints.ts";
import {
  CUT_END_BYTES_MAX,
  EventEnds,
  goesOn,
  mayGoOn,
  missingEnd,
} from "./event_ends.ts";
import {
  EVENT_READERS,
  type EventPlace,
  type EventReader,
  isWholeEvent,
} from "./event_readers.ts";
import { BYTES_PER_TOKEN, TextTokens } from "../../openai/tokens.ts";

const QUOTE = 0x22;
const NOTHING = new Uint8Array(0);

/** An event with which a server reports that it has failed. */
export interface FailureEvent {
  /** The event as it came. */
  readonly text: string;
  /** What it says, or undefined if that is no JSON. */
  readonly data: unknown;
}

/** Reads one stream of events. Must not be used after it has thrown. */
export class EventTap {
  /** The model has begun to answer: something besides pings and announcements came. */
  hasBegun = false;
  /** The model has said that it has finished. */
  isFinished = false;
  /** What the server states of the usage so far. */
  usage: Usage | null = null;
  /** The counts of that do not add up, so the larger are in it. */
  isRepaired = false;
  /** The counts of a dialect that states them one after the other. */
  counts: Readonly<Record<string, unknown>> = {};
  /** The event that ended the stream with an error; what follows it is dropped. */
  failure: FailureEvent | null = null;
  readonly #reader: EventReader;
  /** An event whose end has not come. */
  #pieces: Uint8Array[] = [];
  #pieceBytes = 0;
  /** The last bytes of that, among which its end may begin. */
  #tail = "";
  /** The last event ended with the first half of a CRLF, or with a CR alone. */
  #mayGoOn = false;
  readonly #text = new TextTokens();

  constructor(endpoint: ForwardName) {
    this.#reader = EVENT_READERS[endpoint];
  }

  /** Bytes that are kept because their event is not complete. */
  get pendingBytes(): number {
    return this.#pieceBytes;
  }

  /** Tokens so far: the largest of what is stated and what the text shows. */
  get tokens(): number {
    const tokens = this.usage?.completion_tokens ?? 0;
    return Math.max(tokens, this.#text.leastTokens);
  }

  /** Tokens of the answer by its text, for a server that states none. */
  get estimatedTokens(): number {
    return this.#text.estimate;
  }

  /** Whether any text was seen. */
  get hasText(): boolean {
    return this.#text.pieces > 0;
  }

  /**
   * Takes the next bytes, and returns the events that are whole by now, without those
   * from an error on: a view of `piece` or a copy. Throws a `RangeError` for an event
   * that is too long.
   */
  push(piece: Uint8Array): Uint8Array {
    let bytes = piece;
    let text = latin1(piece);
    let from = this.#mayGoOn && goesOn(piece) ? 1 : 0;
    if (piece.length > 0) this.#mayGoOn = false;
    if (this.#pieceBytes > 0) {
      if (new EventEnds(this.#tail + text).after(0) < 0) {
        this.#keep(piece, text);
        return NOTHING;
      }
      bytes = this.#bytesWith(piece);
      text = latin1(bytes);
    }
    const ends = new EventEnds(text);
    for (let to = ends.after(from); to >= 0; to = ends.after(from)) {
      this.#reader(this, { text, bytes, from, to });
      if (this.failure !== null) return bytes.subarray(0, from);
      from = to;
    }
    if (from === bytes.length) {
      this.#mayGoOn = mayGoOn(bytes);
      return bytes;
    }
    this.#keep(bytes.subarray(from), text.slice(from));
    return bytes.subarray(0, from);
  }

  /**
   * Takes the end of the stream, and returns what is left of it: an event that lacks
   * nothing but its blank line, with one, since clients take it for broken off without;
   * or whatever follows the end of the answer.
   */
  end(): Uint8Array {
    if (this.#pieceBytes === 0) return NOTHING;
    const bytes = this.#bytesWith(NOTHING);
    const rest: EventPlace = {
      text: latin1(bytes),
      bytes,
      from: 0,
      to: bytes.length,
    };
    if (!isWholeEvent(rest)) return this.isFinished ? bytes : NOTHING;
    this.#reader(this, rest);
    const { failure } = this;
    const missing = missingEnd(bytes);
    if (failure === null) return Buffer.concat([bytes, Buffer.from(missing)]);
    this.failure = { ...failure, text: failure.text + missing };
    return NOTHING;
  }

  /** Counts the string that begins at the first quote after `at`, if one is there. */
  countText(text: string, at: number): void {
    let from = at;
    while (text.charCodeAt(from) === 0x20) from++;
    if (text.charCodeAt(from) !== QUOTE) return;
    const bytes = endOfString(text, from + 1) - from - 1;
    if (bytes <= 0) return;
    this.#text.add(bytes / BYTES_PER_TOKEN);
  }

  /** What was kept, and what follows it. */
  #bytesWith(piece: Uint8Array): Uint8Array {
    const bytes = Buffer.concat([...this.#pieces, piece]);
    this.#pieces = [];
    this.#pieceBytes = 0;
    this.#tail = "";
    return bytes;
  }

  #keep(bytes: Uint8Array, text: string): void {
    // A copy, since the next read takes the buffer.
    this.#pieces.push(new Uint8Array(bytes));
    this.#pieceBytes += bytes.length;
    this.#tail = (this.#tail + text).slice(-CUT_END_BYTES_MAX);
    if (this.#pieceBytes > STREAM_LIMITS.lineBytesMax) {
      throw new RangeError("An event is too long");
    }
  }
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
    .toString("latin1");
}
