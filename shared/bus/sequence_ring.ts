/**
 * One value for each sequence number of an unbroken run: added at its end, removed
 * from its start, found by number. Sequence numbers begin at 1. Holds as much as
 * was ever in it at once; whoever adds keeps the bound.
 */
export class SequenceRing<T> {
  #slots: (T | undefined)[];
  #mask: number;
  #first = 1;
  #next = 1;

  /** `capacity`: a power of two; doubled when it is not enough. */
  constructor(capacity: number = 16) {
    this.#slots = new Array<T | undefined>(capacity).fill(undefined);
    this.#mask = capacity - 1;
  }

  /** The lowest number held, or the one after the last when none is. */
  get first(): number {
    return this.#first;
  }

  /** The number that the next value will get. */
  get next(): number {
    return this.#next;
  }

  get size(): number {
    return this.#next - this.#first;
  }

  /** Adds a value under the number `next`. */
  push(value: T): void {
    if (this.size > this.#mask) this.#grow();
    this.#slots[this.#next & this.#mask] = value;
    this.#next++;
  }

  /** The value of a number, or undefined when it is not held. */
  get(sequence: number): T | undefined {
    if (sequence < this.#first || sequence >= this.#next) return undefined;
    return this.#slots[sequence & this.#mask];
  }

  /** Removes the lowest number and returns its value, or undefined when none is held. */
  shift(): T | undefined {
    if (this.#first === this.#next) return undefined;
    const index = this.#first & this.#mask;
    const value = this.#slots[index];
    this.#slots[index] = undefined;
    this.#first++;
    return value;
  }

  /** Lets go of all values. The next number stays what it is. */
  clear(): void {
    this.#slots.fill(undefined);
    this.#first = this.#next;
  }

  #grow(): void {
    const mask = 2 * this.#slots.length - 1;
    const slots = new Array<T | undefined>(mask + 1).fill(undefined);
    for (let sequence = this.#first; sequence < this.#next; sequence++) {
      slots[sequence & mask] = this.#slots[sequence & this.#mask];
    }
    this.#slots = slots;
    this.#mask = mask;
  }
}
