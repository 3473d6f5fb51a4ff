/** CSV files that spreadsheets cannot mistake for formulas. */
import assert from "node:assert/strict";
import { csvHead, csvLine } from "./csv.ts";

/** The cells of one line, as RFC 4180 reads them. */
function cellsOf(line: string): string[] {
  assert.ok(line.endsWith("\r\n"), line);
  const cells: string[] = [];
  const rest = line.slice(0, -2).replace(
    /(?:^|,)(?:"((?:[^"]|"")*)"|([^",\r\n]*))/gy,
    (_, quoted?: string, plain?: string) => {
      cells.push(quoted?.replaceAll('""', '"') ?? plain ?? "");
      return "";
    },
  );
  assert.equal(rest, "", "nothing but the cells");
  return cells;
}

const FORMULAS = [
  "=1+1",
  "+1",
  "-1",
  "@SUM(A1)",
  "\tx",
  "\rx",
  "\0x",
  "\n=1",
  "|calc",
  '=HYPERLINK("http://evil.test","x")',
  "=cmd|' /C calc'!A0",
  '"=1"',
  "＝1+1",
  "＋1",
  "－1",
  "＠SUM(A1)",
  "a\r\n=1",
  'a",=1;"-1',
  "a;=1",
  "%0",
];

Deno.test("ASVS 1.2.10: a cell that looks like a formula is text", () => {
  for (const text of FORMULAS) {
    const [first, cell = "", last, ...more] = cellsOf(csvLine([1, text, 2]));
    assert.deepEqual([first, last, more], ["1", "2", []], text);
    assert.equal(cell.replaceAll(/(^|[;\r\n])'/g, "$1"), text);
    assert.ok(!/(^|;)["\s]*[=+\-@\t\r\n\0|%＝＋－＠]/.test(cell), cell);
  }
});

Deno.test("the CSV file has a byte order mark, and harmless text as it is", () => {
  assert.equal(csvHead(["time", "by"]), "\uFEFFtime,by\r\n");
  const line = csvLine(["sk-Cg…abcd", 'A, b and "c"', "1 -> 2"]);
  assert.equal(line, 'sk-Cg…abcd,"A, b and ""c""",1 -> 2\r\n');
});
