/** A set of values, ordered by a number of each that may change. */

interface Entry<Value> {
  readonly value: Value;
  tag: number;
  /** Which comes first, of those with the same tag, */
  sinceMs: number;
  /** and of those with the same time. */
  readonly order: number;
  index: number;
}

/** Among this many values, one is found by looking through them. */
const FEW = 8;

/** What it costs to keep things in order. */
export interface Work {
  /** Comparisons of two values so far. */
  comparisons: number;
}

/**
 * Values with a tag each, of which the one with the smallest tag is at hand; of equal
 * tags, the one that has waited longest. Every change takes O(log n).
 */
export class TagHeap<Value> {
  /** A binary heap: an entry is before those at twice its index, plus 1 and 2. */
  #entries: Entry<Value>[] = [];
  /** Made for many: most heaps have one value, for which a map would cost more. */
  #byValue: Map<Value, Entry<Value>> | null = null;
  readonly #work: Work;
  #added = 0;

  /** `work` counts what it costs, together with others. */
  constructor(work: Work = { comparisons: 0 }) {
    this.#work = work;
  }

  /** How many values it has. */
  get size(): number {
    return this.#entries.length;
  }

  /** The value with the smallest tag; undefined if there is none. */
  get first(): Value | undefined {
    return this.#entries[0]?.value;
  }

  /** Whether it has this value. */
  has(value: Value): boolean {
    return this.#find(value) !== undefined;
  }

  /** Adds a value, or changes the tag of one that it has, and since when it waits. */
  set(value: Value, tag: number, sinceMs = 0): void {
    const existing = this.#find(value);
    if (existing !== undefined) {
      existing.tag = tag;
      existing.sinceMs = sinceMs;
      this.#settle(existing);
      return;
    }
    this.#added += 1;
    const entry: Entry<Value> = {
      value,
      tag,
      sinceMs,
      order: this.#added,
      index: this.#entries.length,
    };
    // A list that is made with its value takes no room for more.
    if (this.#entries.length === 0) this.#entries = [entry];
    else this.#entries.push(entry);
    this.#byValue?.set(value, entry);
    if (this.#entries.length > FEW) this.#byValue ??= mapOf(this.#entries);
    this.#settle(entry);
  }

  /** Removes a value. False if it does not have it. */
  delete(value: Value): boolean {
    const entry = this.#find(value);
    if (entry === undefined) return false;
    this.#byValue?.delete(value);
    const last = this.#entries.pop();
    if (last !== undefined && last !== entry) {
      this.#place(last, entry.index);
      this.#settle(last);
    }
    if (this.#entries.length === 0) this.#byValue = null;
    return true;
  }

  #find(value: Value): Entry<Value> | undefined {
    if (this.#byValue !== null) return this.#byValue.get(value);
    return this.#entries.find((each) => each.value === value);
  }

  /** Moves an entry up or down to where its tag belongs. */
  #settle(entry: Entry<Value>): void {
    const start = entry.index;
    for (;;) {
      const parent = this.#entries[(entry.index - 1) >> 1];
      if (parent === undefined || !this.#isBefore(entry, parent)) break;
      this.#swap(entry, parent);
    }
    if (entry.index !== start) return;
    for (;;) {
      const left = this.#entries[2 * entry.index + 1];
      const right = this.#entries[2 * entry.index + 2];
      const isRight = left !== undefined && right !== undefined &&
        this.#isBefore(right, left);
      const child = isRight ? right : left;
      if (child === undefined || !this.#isBefore(child, entry)) return;
      this.#swap(entry, child);
    }
  }

  #isBefore(a: Entry<Value>, b: Entry<Value>): boolean {
    this.#work.comparisons += 1;
    if (a.tag !== b.tag) return a.tag < b.tag;
    if (a.sinceMs !== b.sinceMs) return a.sinceMs < b.sinceMs;
    return a.order < b.order;
  }

  #swap(a: Entry<Value>, b: Entry<Value>): void {
    const index = a.index;
    this.#place(a, b.index);
    this.#place(b, index);
  }

  #place(entry: Entry<Value>, index: number): void {
    this.#entries[index] = entry;
    entry.index = index;
  }
}

const mapOf = <Value>(
  entries: readonly Entry<Value>[],
): Map<Value, Entry<Value>> =>
  new Map(entries.map((each) => [each.value, each]));
