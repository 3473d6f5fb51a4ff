/** Reads the JSON of model servers, which nobody has checked. */
export { isJsonObject } from "../process/error_text.ts";

/** An object of which only the server knows the members. */
export type JsonObject = { [name: string]: unknown };

/** The string, or `""` for anything else: null and absent mean "no change". */
export function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/**
 * The value, or undefined for invalid JSON. The parser's error would quote the answer.
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
