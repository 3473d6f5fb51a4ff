/** Lines of RFC 4180 CSV for spreadsheets. */

/**
 * The first line. Without the byte order mark, spreadsheets mistake UTF-8 for an older
 * encoding.
 */
export const csvHead = (names: readonly string[]) => "\uFEFF" + csvLine(names);

/** Writes one line of CSV, with its line break (RFC 4180). */
export const csvLine = (cells: readonly (string | number)[]): string =>
  cells.map((text) => cell(String(text))).join(",") + "\r\n";

const FORMULA = /(^|[;\r\n])(?=["\s]*[=+\-@\t\r\n\0|%＝＋－＠])/g;
/**
 * A cell that every spreadsheet treats as text: `=1+1` becomes `'=1+1` (ASVS 1.2.10).
 * In many countries cells also begin after a semicolon, whatever is quoted.
 */
function cell(text: string): string {
  const inert = text.replace(FORMULA, "$1'");
  return /[",\r\n']/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
}
