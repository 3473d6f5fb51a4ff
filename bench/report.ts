/** Tables: shown as they come, and kept as JSON. */
import { medians } from "./figures.ts";
import { type Options, print } from "./options.ts";
import { run } from "./processes.ts";

export interface Row {
  name: string;
  /** Of each round the figures, in the order of the columns. */
  rounds: number[][];
  /** Whether keys and limits are checked; those who do have a table of their own. */
  isGoverned?: boolean;
}

export interface Table {
  title: string;
  columns: readonly string[];
  rows: readonly Row[];
  notes?: readonly string[];
}

/** The name of this gateway, which is in both kinds of tables. */
export const OURS = "gateway";
const BUSY_LOAD = 0.5;

export class Report {
  readonly #tables: Table[] = [];
  readonly #startedAt = new Date().toISOString();
  readonly #loadAverage = Deno.loadavg()[0] ?? NaN;
  readonly leftOut: Record<string, string> = {};

  leaveOut(name: string, reason: unknown): void {
    this.leftOut[name] = String(reason);
    print(`${name} left out: ${reason}`);
  }

  add(table: Table): void {
    this.#tables.push(table);
    const { title, rows, notes = [] } = table;
    const governed = rows.filter(({ isGoverned }) => isGoverned);
    const plain = rows.filter(({ name, isGoverned }) =>
      !isGoverned || name.startsWith(OURS)
    );
    print(`\n${title}${render(table, plain)}`);
    if (plain.length < rows.length) {
      print(`  keys and limits checked by all:${render(table, governed)}`);
    }
    for (const note of notes) print(`  ${note}`);
  }

  async end({ json }: Options): Promise<void> {
    if (this.#loadAverage > BUSY_LOAD) {
      print(`\nThe machine was busy: load ${this.#loadAverage.toFixed(1)}.`);
    }
    if (json === undefined) return;
    const report = {
      startedAt: this.#startedAt,
      command: Deno.args.join(" "),
      commit: await run("git", ["describe", "--always", "--dirty"]),
      machine: await run("sh", ["-c", "uname -sr; lscpu; free -m"]),
      loadAverageBefore: this.#loadAverage,
      leftOut: this.leftOut,
      tables: this.#tables,
    };
    await Deno.writeTextFile(json, `${JSON.stringify(report, null, 2)}\n`);
  }
}

/** The medians of the rows; their first column also as a ratio to this gateway's. */
function render({ columns }: Table, rows: readonly Row[]): string {
  const ours = rows.find(({ name }) => name === OURS);
  const [base] = ours === undefined ? [] : medians(ours.rounds);
  const cells = rows.map(({ name, rounds }) => {
    const values = medians(rounds);
    const ratio = base === undefined ? [] : [(values[0] ?? NaN) / base];
    return [name, ...[...values, ...ratio].map(format)];
  });
  const head = ["", ...columns, ...base === undefined ? [] : [`${OURS} = 1`]];
  return [head, ...cells].map((row) => {
    const [name = "", ...rest] = row;
    const line = rest.map((text, i) => text.padStart(head[i + 1]?.length ?? 0))
      .join("  ");
    return `\n  ${name.padEnd(24)}  ${line}`;
  }).join("");
}

/** Three digits that mean something. */
function format(value: number): string {
  return Math.abs(value) >= 100
    ? value.toFixed(0)
    : String(Number(value.toPrecision(3)));
}
