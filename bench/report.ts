/** Tables: shown as they come, and kept as JSON. */
import { medians } from "./figures.ts";
import { print, runProcess } from "../tests/support/process.ts";
import type { Options } from "./options.ts";

/** The figures of one contender. */
export interface Row {
  name: string;
  /** The figures of each round, in the order of the columns. */
  rounds: number[][];
}

/** A table of a report. */
export interface Table {
  title: string;
  columns: readonly string[];
  rows: readonly Row[];
  notes?: readonly string[];
}

/**
 * The name of this gateway. It and rivals with keys and limits have a table of their
 * own.
 */
export const OURS = "gateway";
const GOVERNED = /-limits/;

/** Begins a report: `add` prints a table, `end` keeps all of them as JSON. */
export function startReport() {
  const tables: Table[] = [];
  const startedAt = new Date().toISOString();
  const [loadAverageBefore] = Deno.loadavg();

  const add = (table: Table) => {
    tables.push(table);
    const { title, columns, rows, notes = [] } = table;
    const isGoverned = ({ name }: Row) => GOVERNED.test(name);
    const plain = rows.filter((row) => !isGoverned(row));
    print(`\n${title}${render(columns, plain)}`);
    if (rows.some(isGoverned)) {
      const ours = plain.filter(({ name }) => name.startsWith(OURS));
      const all = [...ours, ...rows.filter(isGoverned)];
      print(`  keys and limits checked by all:${render(columns, all)}`);
    }
    for (const note of notes) print(`  ${note}`);
  };
  const end = async ({ json }: Options) => {
    print(`\nLoad average before the run: ${loadAverageBefore}`);
    if (json === undefined) return;
    const commit = await runProcess("git", ["describe", "--always", "--dirty"]);
    const report = {
      startedAt,
      command: Deno.args.join(" "),
      commit: commit.trim(),
      machine: await runProcess("sh", ["-c", "uname -sr; lscpu; free -m"]),
      loadAverageBefore,
      tables,
    };
    await Deno.writeTextFile(json, `${JSON.stringify(report, null, 2)}\n`);
  };
  return { add, end };
}

/** The medians of the rows; the first column also as a ratio to this gateway's. */
function render(columns: readonly string[], rows: readonly Row[]): string {
  const ours = rows.find(({ name }) => name === OURS)?.rounds ?? [];
  const [base = NaN] = medians(ours);
  const head = ["", ...columns, `${OURS} = 1`];
  const cells = rows.map(({ name, rounds }) => {
    const values = medians(rounds);
    return [name, ...[...values, (values[0] ?? NaN) / base].map(format)];
  });
  const widths = head.map((text) => text.length);
  return [head, ...cells].map(([name = "", ...values]) => {
    const padded = values.map((text, i) => text.padStart(widths[i + 1] ?? 0));
    return `\n  ${[name.padEnd(24), ...padded].join("  ")}`;
  }).join("");
}

/** Three significant digits, and nothing where there is no figure. */
const format = (value: number): string =>
  Number.isNaN(value)
    ? ""
    : Math.abs(value) >= 100
    ? value.toFixed(0)
    : String(Number(value.toPrecision(3)));
