/** A JSON object of which nothing is known yet. */
export type JsonObject = { [name: string]: unknown };

/** Narrows to a JSON object: not null, not an array. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The string, or `""` for anything else: null and absent mean "no news". */
export function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** The value, or undefined for what is not JSON. The parser's own message would quote the answer. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
