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

/**
 * Values with a tag each, of which the one with the smallest tag is at hand; of equal
 * tags, the one that has waited longest. Every change takes O(log n).
 */
export class TagHeap<Value> {
  /** A binary heap: an entry is before those at twice its index, plus 1 and 2. */
  readonly #entries: Entry<Value>[] = [];
  readonly #byValue = new Map<Value, Entry<Value>>();
  #added = 0;

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
    return this.#byValue.has(value);
  }

  /** All values, in no order. */
  values(): MapIterator<Value> {
    return this.#byValue.keys();
  }

  /** Adds a value, or changes the tag of one that it has, and since when it waits. */
  set(value: Value, tag: number, sinceMs = 0): void {
    const existing = this.#byValue.get(value);
    if (existing !== undefined) {
      Object.assign(existing, { tag, sinceMs });
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
    this.#byValue.set(value, entry);
    this.#entries.push(entry);
    this.#settle(entry);
  }

  /** Removes a value. False if it does not have it. */
  delete(value: Value): boolean {
    const entry = this.#byValue.get(value);
    if (entry === undefined) return false;
    this.#byValue.delete(value);
    const last = this.#entries.pop();
    if (last !== undefined && last !== entry) {
      this.#place(last, entry.index);
      this.#settle(last);
    }
    return true;
  }

  /** Moves an entry up or down to where its tag belongs. */
  #settle(entry: Entry<Value>): void {
    const start = entry.index;
    for (;;) {
      const parent = this.#entries[(entry.index - 1) >> 1];
      if (parent === undefined || !isBefore(entry, parent)) break;
      this.#swap(entry, parent);
    }
    if (entry.index !== start) return;
    for (;;) {
      const left = this.#entries[2 * entry.index + 1];
      const right = this.#entries[2 * entry.index + 2];
      const isRight = left !== undefined && right !== undefined &&
        isBefore(right, left);
      const child = isRight ? right : left;
      if (child === undefined || !isBefore(child, entry)) return;
      this.#swap(entry, child);
    }
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

function isBefore<Value>(a: Entry<Value>, b: Entry<Value>): boolean {
  if (a.tag !== b.tag) return a.tag < b.tag;
  if (a.sinceMs !== b.sinceMs) return a.sinceMs < b.sinceMs;
  return a.order < b.order;
}
