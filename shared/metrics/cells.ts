/**
 * What is counted, in the plainest form: a number, or a row of numbers, per set of
 * label values. A request pays for some additions and a look-up or two, and all
 * that a text format wants is done when somebody asks for it. Pure.
 */

/** A value for each label of a metric. */
export type LabelValues<Labels extends readonly string[]> = {
  readonly [Index in keyof Labels]: string;
};

/** Rises. */
export class CounterCell {
  #value = 0;

  get value(): number {
    return this.#value;
  }

  add(amount = 1): void {
    this.#value += amount;
  }
}

/** Sorts what it is shown into buckets. */
export class HistogramCell {
  readonly #bounds: readonly number[];
  readonly #counts: Float64Array;
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Float64Array(bounds.length + 1);
  }

  get sum(): number {
    return this.#sum;
  }

  observe(value: number): void {
    let index = 0;
    // A dozen bounds at most: searching costs no more than a division would.
    for (const bound of this.#bounds) {
      if (value <= bound) break;
      index += 1;
    }
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#sum += value;
  }

  /** How many were at most each bound; the last entry counts all. */
  cumulative(): number[] {
    let total = 0;
    return Array.from(this.#counts, (count) => total += count);
  }
}

/** A cell with its labels by name. */
export interface LabelledCell<Cell> {
  readonly labels: Readonly<Record<string, string>>;
  readonly cell: Cell;
}

/** Not in any label value, so that joined values stay apart. */
const SEPARATOR = "\u0000";

/** The cells of one metric, made when they are first named. */
export class CellFamily<Labels extends readonly string[], Cell> {
  readonly #names: Labels;
  readonly #create: () => Cell;
  readonly #cells = new Map<string, LabelledCell<Cell>>();

  constructor(names: Labels, create: () => Cell) {
    this.#names = names;
    this.#create = create;
    // Without labels there is one cell, and zero is a value worth showing.
    if (names.length === 0) this.#add("", names);
  }

  /** The cell of these values, in the order of the names. Kept by those who use it often. */
  with(...values: LabelValues<Labels>): Cell {
    const key = values.length === 1 ? values[0] ?? "" : values.join(SEPARATOR);
    return this.#cells.get(key)?.cell ?? this.#add(key, values);
  }

  all(): Iterable<LabelledCell<Cell>> {
    return this.#cells.values();
  }

  #add(key: string, values: readonly string[]): Cell {
    const cell = this.#create();
    const labels = Object.fromEntries(
      this.#names.map((name, index) => [name, values[index] ?? ""]),
    );
    this.#cells.set(key, { labels, cell });
    return cell;
  }
}
