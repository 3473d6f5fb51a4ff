/** Members that nobody knows, put into known objects, and what became of them. */
import assert from "node:assert/strict";

/** An object of JSON. */
export type Json = { [name: string]: unknown };

/** How deep the value of a member may be. */
const DEPTH_MAX = 4;
const MEMBERS_MAX = 3;
/** Each is followed by a number: no two members of a case have the same name. */
const NAMES = [
  "x_",
  "é ",
  "日本",
  "a.b/",
  "😀",
  "$",
  '"\\',
  "constructor",
  "__proto__",
  " ",
  "-",
];
const TEXTS = [
  "",
  "a",
  "line\nend\r\n",
  '"quoted" \\ back',
  "\u0000\u001f\u007f",
  "\u2028\u2029\ufeff",
  "<script>&amp;",
  "日本語 😀 é",
  "[DONE]",
  "data: x\n\n",
];
const NUMBERS = [
  0,
  1,
  -1,
  0.1,
  1e-7,
  1.5e300,
  -2.25,
  2 ** 31,
  2 ** 53 - 1,
  -(2 ** 53 - 1),
];

/** What was put where: the value by the name, which occurs once in a case. */
export type Planted = Map<string, unknown>;

/** Plants random members; the same ones for the same source of chance. */
export class Planter {
  readonly planted: Planted = new Map();
  readonly #random: () => number;

  /** `random` returns numbers in [0, 1). */
  constructor(random: () => number) {
    this.#random = random;
  }

  /** The object with some members more, at its start or at its end. */
  in(object: Json): Json {
    const members: Json = {};
    for (let left = this.#below(MEMBERS_MAX + 1); left > 0; left -= 1) {
      const name = `${this.#pick(NAMES)}${this.planted.size}`;
      const value = this.#value(DEPTH_MAX);
      members[name] = value;
      this.planted.set(name, value);
    }
    return this.#below(2) === 0
      ? { ...members, ...object }
      : { ...object, ...members };
  }

  /** Never null at the top: a null in a delta says nothing, and is left out. */
  #value(depth: number): unknown {
    const kind = this.#below(depth === 0 ? 3 : 5);
    if (kind === 0) return this.#pick(TEXTS);
    if (kind === 1) return this.#pick(NUMBERS);
    if (kind === 2) return this.#below(2) === 0;
    const count = this.#below(MEMBERS_MAX + 1);
    const values = Array.from(
      { length: count },
      () => this.#below(8) === 0 ? null : this.#value(depth - 1),
    );
    if (kind === 3) return values;
    return Object.fromEntries(
      values.map((value, at) => [`${this.#pick(NAMES)}${at}`, value]),
    );
  }

  #below(bound: number): number {
    return Math.floor(this.#random() * bound);
  }

  #pick<Item>(items: readonly Item[]): Item {
    return items[this.#below(items.length)] ?? assert.fail("nothing to pick");
  }
}

/** Fails if a planted member is missing in `places`, or has another value there. */
export function assertArrived(
  planted: Planted,
  places: unknown,
  what: string,
): void {
  const found = membersOf(places, planted);
  for (const [name, value] of planted) {
    assert.ok(found.has(name), `${what}: ${JSON.stringify(name)} is missing`);
    assert.deepEqual(found.get(name), value, `${what}: ${name}`);
  }
}

/** The members with planted names; what is within them is not looked at. */
function membersOf(
  value: unknown,
  planted: Planted,
  found: Planted = new Map(),
): Planted {
  if (Array.isArray(value)) {
    for (const each of value) membersOf(each, planted, found);
  } else if (typeof value === "object" && value !== null) {
    for (const [name, each] of Object.entries(value)) {
      if (planted.has(name)) found.set(name, each);
      else membersOf(each, planted, found);
    }
  }
  return found;
}
