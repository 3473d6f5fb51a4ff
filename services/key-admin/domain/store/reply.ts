/** Reads untyped Redis replies. A reply of another form is a fault, not data. */

/** A bulk string. */
export function asText(reply: unknown): string {
  if (typeof reply === "string") return reply;
  throw unexpected("text", reply);
}

/** A bulk string, or null where Redis has nothing. */
export function asTextOrNull(reply: unknown): string | null {
  return reply === null ? null : asText(reply);
}

/** An integer, or decimal text as scripts and hashes give it. */
export function asNumber(reply: unknown): number {
  const value = typeof reply === "number" ? reply : Number(asText(reply));
  if (Number.isFinite(value)) return value;
  throw unexpected("a number", reply);
}

/** An array of anything. */
export function asList(reply: unknown): unknown[] {
  if (Array.isArray(reply)) return reply;
  throw unexpected("a list", reply);
}

/** An array of bulk strings. */
export function asTexts(reply: unknown): string[] {
  return asList(reply).map(asText);
}

/** `[field, value, field, value]`, as HGETALL and streams give it. */
export function asFields(reply: unknown): Map<string, string> {
  const flat = asTexts(reply);
  const fields = new Map<string, string>();
  for (let at = 0; at + 1 < flat.length; at += 2) {
    fields.set(flat[at] ?? "", flat[at + 1] ?? "");
  }
  return fields;
}

function unexpected(wanted: string, reply: unknown): Error {
  return new Error(`Unexpected reply of redis: ${typeof reply}, not ${wanted}`);
}
