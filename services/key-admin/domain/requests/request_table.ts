/**
 * The request log of an account in memory, as numbers: a search over a million rows has
 * to look at each of them, and as objects they would take 400 MB.
 */
import {
  REQUEST_OUTCOMES,
  type RequestOutcome,
  type RequestRow,
} from "@gateway/shared/keys/request_row";

/** The rows to find. An empty text and null stand for any value. */
export interface RowFilter {
  /** Rows of one of these keys; none of them: no rows. */
  keyIds: readonly string[] | null;
  model: string;
  /** The code of the error, or the reason. */
  code: string;
  /** `req_` and 32 hexadecimal digits, the latter in lower case. */
  requestId: string;
  outcome: RequestOutcome | "";
  /** Rows of this time on. */
  fromMs: number | null;
  /** Rows before this time. */
  toMs: number | null;
}

/** The place of a row in its stream, whose order is that of time. */
export interface RowPlace {
  /** Redis' clock, when the row was written. */
  readonly ms: number;
  readonly sequence: number;
}

/** Columns of texts, as numbers of {@link Texts}, which precede the others. */
const TEXTS = [
  "keyId",
  "code",
  "reason",
  "param",
  "model",
  "endpoint",
  "backend",
  "clientAddress",
  "budget",
] as const;
const NUMBERS = ["status", "durationMs", "attempts", "more"] as const;

const FIRST_NUMBER = TEXTS.length;
const OUTCOME = FIRST_NUMBER + NUMBERS.length;
/** One more than the time to the first byte; 0: there was none. */
const FIRST_BYTE = OUTCOME + 1;
const SEQUENCE = FIRST_BYTE + 1;
/** The request id takes four numbers of 32 bits. */
const REQUEST_ID = SEQUENCE + 1;
const REQUEST_ID_NUMBERS = 4;
const STRIDE = REQUEST_ID + REQUEST_ID_NUMBERS;
const HEX_PER_NUMBER = 8;
const REQUEST_ID_TEXT = /^req_([0-9a-f]{32})$/;

const KEY_ID = TEXTS.indexOf("keyId");
const MODEL = TEXTS.indexOf("model");
const CODE = TEXTS.indexOf("code");
const REASON = TEXTS.indexOf("reason");

const ROWS_FIRST = 16;
/** Clocks of edges may be ahead of that of Redis by this much. */
const AHEAD_MS = 600_000;

/** Texts by number; the rows of all accounts share them. */
export class Texts {
  readonly #numbers = new Map<string, number>();
  readonly #texts: string[] = [];

  /** How many there are. */
  get size(): number {
    return this.#texts.length;
  }

  /** The number of a text, which may be new. */
  numberOf(text: string): number {
    const before = this.#numbers.get(text);
    if (before !== undefined) return before;
    const number = this.#texts.push(text) - 1;
    this.#numbers.set(text, number);
    return number;
  }

  /** Returns the number of a text; null if no row has it. */
  find(text: string): number | null {
    return this.#numbers.get(text) ?? null;
  }

  /** The text of a number. */
  textOf(number: number | undefined): string {
    return this.#texts[number ?? -1] ?? "";
  }
}

/** A filter with the numbers of its texts. */
interface NumberFilter {
  /** Columns, each followed by the number that it must have. */
  readonly equal: readonly number[];
  /** The numbers of the keys; null for any. */
  readonly keys: ReadonlySet<number> | null;
  /** The number of the code or reason; null for any. */
  readonly code: number | null;
  readonly fromMs: number;
  readonly toMs: number;
}

/** The rows of one account, in the order of their stream. */
export class RequestTable {
  readonly #texts: Texts;
  /** For each row, when it ended and when it was written. */
  #times = new Float64Array(2 * ROWS_FIRST);
  #numbers = new Uint32Array(STRIDE * ROWS_FIRST);
  #first = 0;
  #end = 0;

  constructor(texts: Texts) {
    this.#texts = texts;
  }

  /** How many rows there are. */
  get size(): number {
    return this.#end - this.#first;
  }

  /** Adds a row, later than all others. */
  add({ ms, sequence }: RowPlace, row: RequestRow): void {
    this.#makeRoom();
    const at = this.#end;
    this.#times[2 * at] = row.timeMs;
    this.#times[2 * at + 1] = ms;
    const start = STRIDE * at;
    const set = (column: number, value: number) => {
      this.#numbers[start + column] = value;
    };
    TEXTS.forEach((name, column) =>
      set(column, this.#texts.numberOf(row[name]))
    );
    NUMBERS.forEach((name, column) => set(FIRST_NUMBER + column, row[name]));
    set(OUTCOME, REQUEST_OUTCOMES.indexOf(row.outcome));
    set(FIRST_BYTE, row.firstByteMs === null ? 0 : row.firstByteMs + 1);
    set(SEQUENCE, sequence);
    numbersOfId(row.requestId).forEach((value, column) =>
      set(REQUEST_ID + column, value)
    );
    this.#end += 1;
  }

  /** Forgets the rows before a place. Returns how many these were. */
  dropBefore(place: RowPlace): number {
    const before = this.#first;
    while (
      this.#first < this.#end && isBefore(this.#placeOf(this.#first), place)
    ) this.#first += 1;
    return this.#first - before;
  }

  /** Forgets the oldest rows. Returns when the last one of them was written. */
  dropOldest(count: number): number {
    this.#first = Math.min(this.#end, this.#first + count);
    return this.#times[2 * this.#first - 1] ?? 0;
  }

  /** Where the newest rows are that pass a filter, before a place, at most `max`. */
  find(
    filter: RowFilter,
    { max, before }: { max: number; before: (place: RowPlace) => boolean },
  ): { place: RowPlace; at: number }[] {
    const wanted = this.#filterOf(filter);
    if (wanted === null) return [];
    const found: { place: RowPlace; at: number }[] = [];
    for (let at = this.#end - 1; at >= this.#first; at--) {
      const writtenMs = this.#times[2 * at + 1] ?? 0;
      if (writtenMs < wanted.fromMs - AHEAD_MS) break;
      if (!this.#passes(at, wanted)) continue;
      const place = this.#placeOf(at);
      if (!before(place)) continue;
      found.push({ place, at });
      if (found.length === max) break;
    }
    return found;
  }

  /** The ids of the keys that the rows name. */
  keyIds(): Set<string> {
    const numbers = new Set<number>();
    for (let at = this.#first; at < this.#end; at++) {
      numbers.add(this.#numbers[STRIDE * at + KEY_ID] ?? 0);
    }
    return new Set([...numbers].map((number) => this.#texts.textOf(number)));
  }

  /** A row that was found, unless rows have been added or dropped since. */
  rowAt(at: number): RequestRow {
    const start = STRIDE * at;
    const number = (column: number) => this.#numbers[start + column] ?? 0;
    const text = (name: typeof TEXTS[number]) =>
      this.#texts.textOf(number(TEXTS.indexOf(name)));
    const count = (name: typeof NUMBERS[number]) =>
      number(FIRST_NUMBER + NUMBERS.indexOf(name));
    const firstByte = number(FIRST_BYTE);
    return {
      timeMs: this.#times[2 * at] ?? 0,
      requestId: `req_${
        Array.from({ length: REQUEST_ID_NUMBERS }, (_, part) =>
          number(REQUEST_ID + part).toString(16)
            .padStart(HEX_PER_NUMBER, "0")).join("")
      }`,
      keyId: text("keyId"),
      outcome: REQUEST_OUTCOMES[number(OUTCOME)] ?? "failed",
      status: count("status"),
      code: text("code"),
      reason: text("reason"),
      param: text("param"),
      model: text("model"),
      endpoint: text("endpoint"),
      durationMs: count("durationMs"),
      firstByteMs: firstByte === 0 ? null : firstByte - 1,
      backend: text("backend"),
      attempts: count("attempts"),
      clientAddress: text("clientAddress"),
      more: count("more"),
      budget: text("budget"),
    };
  }

  #passes(
    at: number,
    { equal, keys, code, fromMs, toMs }: NumberFilter,
  ): boolean {
    const numbers = this.#numbers;
    const start = STRIDE * at;
    if (keys !== null && !keys.has(numbers[start + KEY_ID] ?? -1)) return false;
    // Without an iterator: it is run a million times.
    for (let n = 0; n < equal.length; n += 2) {
      if (numbers[start + (equal[n] ?? 0)] !== equal[n + 1]) return false;
    }
    const isCode = code === null || numbers[start + CODE] === code ||
      numbers[start + REASON] === code;
    const timeMs = this.#times[2 * at] ?? 0;
    return isCode && timeMs >= fromMs && timeMs < toMs;
  }

  /** Null: no row of any account has one of the texts. */
  #filterOf(filter: RowFilter): NumberFilter | null {
    const { keyIds, model, code, requestId, outcome, fromMs, toMs } = filter;
    const equal: number[] = [];
    const modelNumber = model === "" ? null : this.#texts.find(model);
    if (modelNumber !== null) equal.push(MODEL, modelNumber);
    else if (model !== "") return null;
    const keys = keyIds && this.#numbersOf(keyIds);
    if (keys?.size === 0) return null;
    const codeNumber = code === "" ? null : this.#texts.find(code);
    if (code !== "" && codeNumber === null) return null;
    if (outcome !== "") {
      equal.push(OUTCOME, REQUEST_OUTCOMES.indexOf(outcome));
    }
    if (requestId !== "") {
      numbersOfId(requestId).forEach((value, at) =>
        equal.push(REQUEST_ID + at, value)
      );
    }
    return {
      equal,
      keys,
      code: codeNumber,
      fromMs: fromMs ?? -Infinity,
      toMs: toMs ?? Infinity,
    };
  }

  /** The numbers of these texts, of those that any row has. */
  #numbersOf(texts: readonly string[]): Set<number> {
    const numbers = texts.map((text) => this.#texts.find(text));
    return new Set(numbers.filter((number) => number !== null));
  }

  #placeOf(at: number): RowPlace {
    return {
      ms: this.#times[2 * at + 1] ?? 0,
      sequence: this.#numbers[STRIDE * at + SEQUENCE] ?? 0,
    };
  }

  /**
   * Makes room for a row: in the place of dropped ones, or in arrays of twice the size.
   */
  #makeRoom(): void {
    const { size } = this;
    const capacity = this.#times.length / 2;
    if (this.#end < capacity) return;
    const rows = size > capacity / 2 ? 2 * capacity : capacity;
    const times = new Float64Array(2 * rows);
    const numbers = new Uint32Array(STRIDE * rows);
    times.set(this.#times.subarray(2 * this.#first, 2 * this.#end));
    numbers.set(
      this.#numbers.subarray(STRIDE * this.#first, STRIDE * this.#end),
    );
    this.#times = times;
    this.#numbers = numbers;
    this.#first = 0;
    this.#end = size;
  }
}

/** Whether a place comes before another one. */
export const isBefore = (a: RowPlace, b: RowPlace): boolean =>
  a.ms < b.ms || (a.ms === b.ms && a.sequence < b.sequence);

/** The digits of a request id as numbers; of another text, zeros. */
function numbersOfId(requestId: string): number[] {
  const digits = REQUEST_ID_TEXT.exec(requestId)?.[1] ?? "";
  return Array.from({ length: REQUEST_ID_NUMBERS }, (_, part) => {
    const start = HEX_PER_NUMBER * part;
    return Number(`0x${digits.slice(start, start + HEX_PER_NUMBER) || "0"}`);
  });
}
