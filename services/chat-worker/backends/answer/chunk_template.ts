/**
 * Recognizes chunks of a stream that differ from an earlier one only in their text, as
 * nearly all do. Such a chunk is not parsed and written anew: its text is put between
 * what stood around the text of the earlier one when that was passed on.
 */
import { Buffer } from "node:buffer";
import { isJsonObject, parseJson } from "@gateway/shared/upstream/json";

/** What stands around a text: `head + text + tail` is the whole. */
export interface Surroundings {
  readonly head: string;
  readonly tail: string;
}

/** A chunk that was passed on, and may come again with another text. */
export interface LearnedChunk {
  /** The chunk as the server sent it. */
  readonly payload: string;
  /** The only text in it. */
  readonly text: string;
  /** The member of its delta that has the text, by the server's name. */
  readonly member: string;
  /** What is written around the text. */
  readonly surroundings: Surroundings;
}

/** A text that is the same in JSON. A longer one is not worth the search. */
const PLAIN = /^[^"\\\p{Cc}\p{Cs}]{1,256}$/u;
/** No text of a model, so it shows which string of a chunk is the text. */
const PROBE = "\u0002\u0003probe\u0003\u0002";
const PROBE_JSON = JSON.stringify(PROBE).slice(1, -1);
/** Places at which a text is looked for: short ones also occur as names or ids. */
const PLACES_MAX = 4;
/**
 * After this many chunks learned in vain, no more are: the server's chunks all differ.
 */
const FRUITLESS_MAX = 3;

/** The chunk that a stream repeats, if it repeats one. */
export class ChunkTemplate {
  #read: Surroundings | null = null;
  #surroundings: Surroundings = { head: "", tail: "" };
  #fruitless = 0;
  #hasMatched = false;

  /**
   * The text of a chunk that is otherwise like the one that was learned; null for any
   * other chunk, and for a text that JSON would have to escape.
   */
  textIn(payload: string): string | null {
    const read = this.#read;
    if (read === null) return null;
    const { head, tail } = read;
    const end = payload.length - tail.length;
    if (end <= head.length) return null;
    // This takes half the time of startsWith() and endsWith().
    if (payload.slice(end) !== tail) return null;
    if (payload.slice(0, head.length) !== head) return null;
    const text = payload.slice(head.length, end);
    if (!PLAIN.test(text)) return null;
    this.#hasMatched = true;
    return text;
  }

  /** What to pass on for a text that {@link textIn} has returned. */
  lineOf(text: string): string {
    return this.#surroundings.head + text + this.#surroundings.tail;
  }

  /** Whether it makes sense to learn another chunk. */
  get isLearning(): boolean {
    return this.#fruitless < FRUITLESS_MAX;
  }

  /** Learns a chunk, instead of any that was learned before. */
  learn({ payload, text, member, surroundings }: LearnedChunk): void {
    if (!PLAIN.test(text)) return;
    this.#fruitless = this.#hasMatched ? 0 : this.#fruitless + 1;
    this.#hasMatched = false;
    const read = surroundingsOf(payload, text, member);
    this.#read = read === null ? null : inOnePiece(read);
    this.#surroundings = inOnePiece(surroundings);
  }
}

/** The same texts, without the chunks and concatenations of which V8 made them. */
function inOnePiece({ head, tail }: Surroundings): Surroundings {
  return {
    head: Buffer.from(head).toString(),
    tail: Buffer.from(tail).toString(),
  };
}

/** Finds the text of a delta in a chunk; null if it is not found. */
function surroundingsOf(
  payload: string,
  text: string,
  member: string,
): Surroundings | null {
  const quoted = `"${text}"`;
  let at = payload.indexOf(quoted);
  for (let place = 0; at >= 0 && place < PLACES_MAX; place++) {
    const head = payload.slice(0, at + 1);
    const tail = payload.slice(at + 1 + text.length);
    if (isTextAt({ head, tail }, member)) return { head, tail };
    at = payload.indexOf(quoted, at + 1);
  }
  return null;
}

function isTextAt({ head, tail }: Surroundings, member: string): boolean {
  const chunk = parseJson(head + PROBE_JSON + tail);
  const choices = isJsonObject(chunk) ? chunk.choices : undefined;
  const choice: unknown = Array.isArray(choices) ? choices[0] : undefined;
  const delta = isJsonObject(choice) ? choice.delta : undefined;
  return isJsonObject(delta) && delta[member] === PROBE;
}
