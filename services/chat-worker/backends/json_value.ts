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

/** A count: an integer from 0 that JSON carries exactly. */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && typeof value === "number" && value >= 0;
}
