/** True for a JSON object, so that its members can be looked at one by one. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The object that `text` holds as JSON, or `undefined` for any other text. */
export function parseRecord(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : undefined;
  } catch {
    // Text of another program: not JSON is an answer here, not a failure.
    return undefined;
  }
}
