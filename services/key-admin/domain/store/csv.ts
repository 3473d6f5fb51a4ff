/** Lines of RFC 4180 CSV for spreadsheets. */

/** The first line. Without the byte order mark, spreadsheets mistake UTF-8 for an older encoding. */
export const csvHead = (names: readonly string[]) => "\uFEFF" + csvLine(names);

export const csvLine = (cells: readonly (string | number)[]): string =>
  cells.map((text) => cell(String(text))).join(",") + "\r\n";

/** A cell that every spreadsheet treats as text: `=1+1` becomes `"'=1+1"` (ASVS 1.2.10). */
function cell(text: string): string {
  const inert = /^[=+\-@\t\r\n\0|%＝＋－＠]/.test(text) ? `'${text}` : text;
  return /[",\r\n']/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
}
