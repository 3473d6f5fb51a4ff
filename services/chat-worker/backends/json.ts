/** A JSON object whose members have not been checked. */
export type JsonObject = { [name: string]: unknown };

/** Whether the value is a JSON object: not null, not an array. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The string, or `""` for anything else: null and absent mean "no change". */
export function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** The value, or undefined for invalid JSON. The parser's error would quote the answer. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
