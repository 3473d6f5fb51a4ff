/** A set of values in an order that may change, each of which knows its place in it. */

/** What it costs to keep things in order. */
export interface Work {
  /** Comparisons of two values so far. */
  comparisons: number;
}

/** The order of the values of heaps, and the member in which each has its place. */
export interface HeapOrder<Place extends string, Value> {
  readonly place: Place;
  readonly isBefore: (a: Value, b: Value) => boolean;
  readonly work: Work;
}

/** The place of a value that is in no heap. */
export const NO_PLACE = -1;

/**
 * Values of which the first in an order is at hand. Every change takes O(log n). A
 * value is in one heap of an order at a time; whoever changes what the order depends
 * on says so at once, by {@link set}.
 */
export class PlacedHeap<
  Place extends string,
  Value extends Record<Place, number>,
> {
  readonly #order: HeapOrder<Place, Value>;
  /** Stands alone: most heaps have one value, for which a list would cost more. */
  #first: Value | undefined = undefined;
  /** A binary heap without its root: the value at place 1 is at index 0. */
  #others: Value[] | null = null;

  constructor(order: HeapOrder<Place, Value>) {
    this.#order = order;
  }

  /** How many values it has. */
  get size(): number {
    if (this.#first === undefined) return 0;
    return 1 + (this.#others?.length ?? 0);
  }

  /** The value that comes before all others; undefined if there is none. */
  get first(): Value | undefined {
    return this.#first;
  }

  /** Adds a value, or moves one that it has to where it belongs now. */
  set(value: Value): void {
    if (value[this.#order.place] === NO_PLACE) this.#put(value, this.size);
    this.#settle(value);
  }

  /** Removes a value that it has. */
  delete(value: Value): void {
    const { place } = this.#order;
    const last = this.#others?.pop() ?? this.#first;
    if (this.#others?.length === 0) this.#others = null;
    if (last === undefined) return;
    if (last === value) {
      if (value[place] === 0) this.#first = undefined;
    } else {
      this.#put(last, value[place]);
      this.#settle(last);
    }
    this.#mark(value, NO_PLACE);
  }

  /** Moves a value up or down to where it belongs. */
  #settle(value: Value): void {
    const { place } = this.#order;
    const start = value[place];
    while (value[place] > 0) {
      const parent = this.#at((value[place] - 1) >> 1);
      if (parent === undefined || !this.#isBefore(value, parent)) break;
      this.#swap(value, parent);
    }
    if (value[place] !== start) return;
    for (;;) {
      const left = this.#at(2 * value[place] + 1);
      const right = this.#at(2 * value[place] + 2);
      const isRight = left !== undefined && right !== undefined &&
        this.#isBefore(right, left);
      const child = isRight ? right : left;
      if (child === undefined || !this.#isBefore(child, value)) return;
      this.#swap(value, child);
    }
  }

  #isBefore(a: Value, b: Value): boolean {
    this.#order.work.comparisons += 1;
    return this.#order.isBefore(a, b);
  }

  #swap(a: Value, b: Value): void {
    const { place } = this.#order;
    const at = a[place];
    this.#put(a, b[place]);
    this.#put(b, at);
  }

  #at(at: number): Value | undefined {
    return at === 0 ? this.#first : this.#others?.[at - 1];
  }

  #put(value: Value, at: number): void {
    if (at === 0) this.#first = value;
    // A list that is made with its value takes no room for more.
    else if (this.#others === null) this.#others = [value];
    else this.#others[at - 1] = value;
    this.#mark(value, at);
  }

  #mark(value: Record<Place, number>, at: number): void {
    value[this.#order.place] = at;
  }
}
