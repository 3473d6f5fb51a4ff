/**
 * Numbers the events of a kept stream, so that a client can say after which one it
 * reads on. The numbers follow from the bytes of the answer alone: whichever edge sends
 * it, an event has the same one.
 */
import { Buffer } from "node:buffer";
import { EventEnds } from "@gateway/shared/forward/events/event_ends";

const NEWLINE = 0x0a;

/** The events of one answer, of which the first ones may be left out. */
export class EventNumbers {
  /** The number of the last event so far. */
  count = 0;
  /** Events up to this one are left out. */
  readonly #after: number;
  /** An event of a server that is not whole. */
  #rest = "";

  constructor(after = 0) {
    this.#after = after;
  }

  /** Whether the client wants to read on after an event that does not exist so far. */
  get isBehind(): boolean {
    return this.count < this.#after;
  }

  /** The client has the event that was counted last. */
  get #isLeftOut(): boolean {
    return this.count <= this.#after;
  }

  /** Each of these whole lines as an event, as `sseFrame` does it, with its number. */
  eventsOf(lines: Uint8Array): Uint8Array {
    const pieces: Uint8Array[] = [];
    let from = 0;
    for (;;) {
      const end = lines.indexOf(NEWLINE, from) + 1;
      if (end === 0) break;
      this.count += 1;
      if (!this.#isLeftOut) {
        const head = Buffer.from(`id: ${this.count}\ndata: `);
        pieces.push(head, lines.subarray(from, end), BLANK_LINE);
      }
      from = end;
    }
    return Buffer.concat(pieces);
  }

  /**
   * The events of a server that are whole by now, each with its number as its last
   * line, so that it counts if the server has given one. The bytes may be cut anywhere.
   */
  numbered(bytes: Uint8Array): Uint8Array {
    // As Latin-1, so that all bytes stay as they are.
    this.#rest += Buffer.from(bytes).toString("latin1");
    // A line may still be ended by what follows its CR.
    const mayGoOn = this.#rest.endsWith("\r");
    const length = this.#rest.length - (mayGoOn ? 1 : 0);
    return Buffer.from(this.#takeEvents(length), "latin1");
  }

  /** What is left once nothing comes any more: perhaps an event without its end. */
  takeRest(): Uint8Array {
    const events = this.#takeEvents(this.#rest.length);
    const rest = this.isBehind ? "" : this.#rest;
    this.#rest = "";
    return Buffer.from(events + rest, "latin1");
  }

  /** The events that are whole within the first bytes of what is left. */
  #takeEvents(length: number): string {
    const text = this.#rest.slice(0, length);
    const ends = new EventEnds(text);
    let from = 0;
    let events = "";
    for (let end = ends.after(0); end > 0; end = ends.after(from)) {
      const event = text.slice(from, end).replace(BLANK_LINES, "");
      from = end;
      if (hasField(event)) {
        this.count += 1;
        if (!this.#isLeftOut) events += withNumber(event, this.count);
      } else if (!this.isBehind) events += withoutEnd(event);
    }
    this.#rest = this.#rest.slice(from);
    return events;
  }
}

function withNumber(event: string, number: number): string {
  const lineEnd = lineEndOf(event);
  return `${withoutEnd(event)}id: ${number}${lineEnd}${lineEnd}`;
}

/** Before an event: too many, of which some clients make events without data. */
const BLANK_LINES = /^[\r\n]+/;

/** Comments alone, which keep a connection alive, are no event. */
const hasField = (event: string): boolean => /^[^:\r\n]/m.test(event);

/**
 * Without the blank line that ends it: once an event had a number, some clients take a
 * blank line after a comment for the end of one more event, whose data they miss.
 */
const withoutEnd = (event: string): string =>
  event.slice(0, event.length - lineEndOf(event).length);

const lineEndOf = (event: string): string =>
  event.endsWith("\r\n") ? "\r\n" : event.slice(-1);

const BLANK_LINE = Uint8Array.of(NEWLINE);
