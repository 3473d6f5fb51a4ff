import assert from "node:assert/strict";
import { AUDIT_CSV_HEAD, auditCsvLine, type AuditRow } from "./audit_log.ts";

const ROW: AuditRow = {
  id: "1-0",
  timeMs: 0,
  action: "key.created",
  by: "ada@example.org",
  ip: "192.0.2.1",
  keyId: "key_a",
  hint: "sk-Cg…abcd",
  description: "Billing",
  detail: "",
};

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
  ...["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\0x", "\n=1", "|calc"],
  ...['=HYPERLINK("http://evil.test","x")', "=cmd|' /C calc'!A0", '"=1"'],
  ...["＝1+1", "＋1", "－1", "＠SUM(A1)", "a\r\n=1", 'a",=1', "a;=1", "%0"],
];

Deno.test("ASVS 1.2.10: a cell that looks like a formula is text", async (t) => {
  for (const text of FORMULAS) {
    await t.step(JSON.stringify(text), () => {
      const row = { ...ROW, by: text, description: text, detail: text };
      const cells = cellsOf(auditCsvLine(row));
      assert.equal(cells.length, cellsOf(AUDIT_CSV_HEAD).length);
      for (const cell of [2, 6, 7].map((at) => cells[at] ?? "")) {
        assert.equal(cell.replace(/^'/, ""), text, "nothing is lost");
        assert.ok(!/^[=+\-@\t\r\n\0|%＝＋－＠]/.test(cell), cell);
      }
    });
  }
});

Deno.test("the CSV file has a byte order mark, and harmless text as it is", () => {
  assert.ok(AUDIT_CSV_HEAD.startsWith("\uFEFFtime,"));
  assert.equal(
    auditCsvLine({ ...ROW, description: 'A, b and "c"', detail: "1 -> 2" }),
    "1970-01-01T00:00:00.000Z,key.created,ada@example.org,192.0.2.1,key_a," +
      'sk-Cg…abcd,"A, b and ""c""",1 -> 2\r\n',
  );
});
