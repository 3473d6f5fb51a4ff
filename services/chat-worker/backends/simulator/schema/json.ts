/** A value that JSON can say. */
export type Json = null | boolean | number | string | Json[] | JsonObject;

/** An object of JSON values. */
export type JsonObject = { [key: string]: Json };

/** Whether a value is an object with members, neither null nor an array. */
export function isObject(value: unknown): value is { [key: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The own member of an object; undefined also where only a prototype has it. */
export function member(
  object: { [key: string]: unknown },
  key: string,
): unknown {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

/** Whether any value is made of JSON values only. */
export function isJson(value: unknown): value is Json {
  if (value === null) return true;
  if (typeof value === "string" || typeof value === "boolean") return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (Array.isArray(value)) return value.every(isJson);
  return isObject(value) && Object.values(value).every(isJson);
}

/** Whether two values say the same; the order of members does not matter. */
export function jsonEqual(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (Array.isArray(one) && Array.isArray(other)) {
    return one.length === other.length &&
      one.every((item, at) => jsonEqual(item, other[at]));
  }
  if (!isObject(one) || !isObject(other)) return false;
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length &&
    keys.every((key) =>
      Object.hasOwn(other, key) && jsonEqual(one[key], other[key])
    );
}

/** The name JSON Schema has for the type of a value. An integer is also a `number`. */
export function typeNameOf(value: Json): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number") {
    return Number.isInteger(value) ? "integer" : "number";
  }
  return typeof value;
}

/** The length as JSON Schema counts it: in code points. */
export function codePointLength(text: string): number {
  let length = 0;
  for (const _character of text) length += 1;
  return length;
}
