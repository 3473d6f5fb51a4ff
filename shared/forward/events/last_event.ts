/**
 * Whether the last event of a stream is the one after which its clients expect nothing:
 * of a failure that comes later, such as the loss of a worker, they must not be told.
 */
import { Buffer } from "node:buffer";
import type { ForwardName } from "../endpoints.ts";
import { endsEvent } from "./event_ends.ts";

/** How those events begin, for the endpoints that have streams. */
const FINAL: { readonly [endpoint in ForwardName]?: RegExp } = {
  messages: /^(?:event:|data:.*"type":) *"?message_stop\b/,
  responses:
    /^(?:event:|data:.*"type":) *"?response\.(?:completed|incomplete)\b/,
  completions: /^data: *\[DONE\]/,
};
/** Enough of an event for its name. */
const HEAD_BYTES = 256;
const COLON = 0x3a;
const LF = 0x0a;
const CR = 0x0d;

/** Follows one stream, whose events may be cut anywhere. */
export class LastEvent {
  readonly #final: RegExp | undefined;
  #hasEnded = true;
  #isFinal = false;

  constructor(endpoint: ForwardName) {
    this.#final = FINAL[endpoint];
  }

  /** The last byte ended an event, so another may follow. True before any byte. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** The answer is complete: its final event has passed, perhaps comments after it. */
  get isFinal(): boolean {
    return this.#hasEnded && this.#isFinal;
  }

  /** Takes the next bytes. */
  push(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    const from = startOfLast(bytes);
    const begins = from > 0 || this.#hasEnded;
    this.#hasEnded = endsEvent(bytes);
    if (!begins || bytes[from] === COLON || this.#final === undefined) return;
    const length = Math.min(HEAD_BYTES, bytes.length - from);
    const head = Buffer.from(bytes.buffer, bytes.byteOffset + from, length);
    this.#isFinal = this.#final.test(head.toString("latin1"));
  }
}

/** Where the last event of these bytes begins: after a blank line, or with them. */
function startOfLast(bytes: Uint8Array): number {
  // Not after the blank line with which they may end.
  for (let at = bytes.length - 3; at > 0; at--) {
    const byte = bytes[at];
    if (byte !== LF && byte !== CR) continue;
    const isPair = byte === LF && bytes[at - 1] === CR;
    const before = bytes[isPair ? at - 2 : at - 1];
    if (before === LF || before === CR) return at + 1;
  }
  return 0;
}
