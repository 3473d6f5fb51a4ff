/** Collections of short-lived entries, and maps of bounded size. */

/**
 * A map for entries that every request adds and removes. A `Map` would keep them alive
 * until the next full garbage collection, with all that they refer to: V8 links each
 * table that a `Map` has outgrown to the next one. Here such a table holds only boxes,
 * which are emptied when their entries are removed.
 */
export class LiveMap<Value> {
  readonly #boxes = new Map<string, { value: Value | null }>();

  /** How many entries there are. */
  get size(): number {
    return this.#boxes.size;
  }

  /** The value of an entry; null if there is none. */
  get(key: string): Value | null {
    return this.#boxes.get(key)?.value ?? null;
  }

  /** Adds an entry, or replaces its value in place. */
  set(key: string, value: Value): void {
    const box = this.#boxes.get(key);
    if (box === undefined) this.#boxes.set(key, { value });
    else box.value = value;
  }

  /** Removes an entry. False if there is none. */
  delete(key: string): boolean {
    const box = this.#boxes.get(key);
    if (box !== undefined) box.value = null;
    return this.#boxes.delete(key);
  }

  /**
   * All values, in the order in which their keys were added. A copy: entries may come
   * and go meanwhile.
   */
  values(): Value[] {
    const values = [...this.#boxes.values()].map(({ value }) => value);
    return values.filter((value) => value !== null);
  }
}

/** What may be in one {@link LiveSet} at a time. */
export interface LiveMember {
  /** Where the set has it. Only the set reads or writes it. */
  livePlace?: number | undefined;
}

/**
 * A set for what every request adds and removes, in no order. A `Set` would keep its
 * former members alive, for the reason that {@link LiveMap} gives.
 */
export class LiveSet<Member extends LiveMember> {
  readonly #members: Member[] = [];

  /** How many members there are. */
  get size(): number {
    return this.#members.length;
  }

  /** Adds a member, unless it is there. */
  add(member: Member): void {
    if (this.#has(member)) return;
    member.livePlace = this.#members.length;
    this.#members.push(member);
  }

  /** Removes a member. False if it is not there. */
  delete(member: Member): boolean {
    const { livePlace = -1 } = member;
    const last = this.#members.at(-1);
    if (!this.#has(member) || last === undefined) return false;
    this.#members[livePlace] = last;
    last.livePlace = livePlace;
    this.#members.pop();
    member.livePlace = undefined;
    return true;
  }

  /** Removes all members. */
  clear(): void {
    for (const member of this.#members) member.livePlace = undefined;
    this.#members.length = 0;
  }

  /** All members. They must not come or go meanwhile. */
  [Symbol.iterator](): IterableIterator<Member> {
    return this.#members.values();
  }

  #has(member: Member): boolean {
    const { livePlace = -1 } = member;
    return this.#members[livePlace] === member;
  }
}

/** An entry for {@link remember}, and how many entries its map may have. */
export interface Remembered<Value> {
  key: string;
  value: Value;
  sizeMax: number;
}

/** Sets an entry and makes it the newest; drops the oldest beyond `sizeMax`. */
export function remember<Value>(
  map: Map<string, Value>,
  { key, value, sizeMax }: Remembered<Value>,
): void {
  map.delete(key);
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > sizeMax && oldest !== undefined) map.delete(oldest);
}
