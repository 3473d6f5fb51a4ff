/**
 * Answers in fields with marks, as DSPy asks for them: `[[ ## name ## ]]` above each
 * value. Pure.
 */
import type { NamedSchema, Schema } from "./json_schema.ts";
import { type ChatRequest, messageText } from "./request.ts";
import { schemaOfNote } from "./written_schema.ts";

/** A mark within a sentence that says which fields an answer has. */
const ASKED_MARK = /`\[\[ ## (\w{1,64}) ## \]\]`/g;
/** A field of the structure that is shown, with a note about its value. */
const SHOWN_FIELD = /\[\[ ## (\w{1,64}) ## \]\]\n\{\1\}(.*)/g;
/** The mark after the last field. */
const END = "completed";

/** The schema of the fields that a question asks for; null if it asks for none. */
export function markedFields(
  { messages }: ChatRequest,
  question: string,
): NamedSchema | null {
  const names = [...question.matchAll(ASKED_MARK)].map(([, name = ""]) => name)
    .filter((name) => name !== END);
  if (names.length === 0) return null;
  const fields = messages.flatMap((message) => [
    ...messageText(message).matchAll(SHOWN_FIELD),
  ]);
  const notes = new Map(fields.map(([, name = "", note = ""]) => [name, note]));
  const properties: Schema = Object.fromEntries(
    names.map((name) => [name, schemaOfNote(notes.get(name) ?? "")]),
  );
  const schema = { type: "object", properties, required: names };
  return { param: "messages", name: "", isStrict: false, schema };
}

/** The text of an answer with these fields. */
export function withMarks(
  fields: { readonly [name: string]: unknown },
): string {
  const parts = Object.entries(fields).map(([name, value]) =>
    `[[ ## ${name} ## ]]\n${inPython(value)}\n\n`
  );
  return `${parts.join("")}[[ ## ${END} ## ]]`;
}

/** A value as it is read by Python: `True`, and lists as JSON. */
function inPython(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return value ? "True" : "False";
  return JSON.stringify(value);
}
