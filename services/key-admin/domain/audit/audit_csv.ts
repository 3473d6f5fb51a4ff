import type { AuditRow } from "./audit_log.ts";

/** What a spreadsheet takes for the beginning of a formula (ASVS 1.2.10). */
const FORMULA = /^[=+\-@\t\r\n\0|%＝＋－＠]/;

const COLUMNS = [
  "time",
  "action",
  "by",
  "ip",
  "key_id",
  "key",
  "description",
  "detail",
] as const;

/** Without it spreadsheets take UTF-8 for an older encoding. */
const BYTE_ORDER_MARK = "\uFEFF";

/** How the file begins: a byte order mark and the names of the columns. */
export const CSV_HEAD: string = BYTE_ORDER_MARK + line([...COLUMNS]);

/** One entry as a line of RFC 4180 CSV. */
export function csvLine(row: AuditRow): string {
  return line([
    new Date(row.timeMs).toISOString(),
    row.action,
    row.by,
    row.ip,
    row.keyId,
    row.hint,
    row.description,
    row.detail,
  ]);
}

function line(cells: string[]): string {
  return cells.map(cell).join(",") + "\r\n";
}

/** A cell that is text in every spreadsheet: `=1+1` becomes `"'=1+1"`. */
function cell(text: string): string {
  const inert = FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n']/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
}
