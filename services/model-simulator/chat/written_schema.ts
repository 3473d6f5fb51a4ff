/**
 * The JSON that a prompt asks for in words, mostly in requests with `json_object`,
 * which say only that the answer is JSON: a schema, an example, or the names of its
 * keys. Pure.
 */
import { isJsonObject } from "@gateway/shared/process/error_text";
import type { NamedSchema, Schema } from "./json_schema.ts";
import { type ChatRequest, messageText } from "./request.ts";

const LOOK_CHARS = 50_000;
/** How many braces are tried as the beginning of an object. */
const TRIES_MAX = 50;
const DEPTH_MAX = 8;
const SCHEMA_MEMBERS = ["properties", "$ref", "$defs", "anyOf"];
const ASKS_FOR_JSON =
  /\b(?:answer|output|reply|respond|return)\b[^.\n]{0,60}\bJSON\b/i;
/** A sentence about keys, and the quoted words in it. */
const KEYS = /[^.!?\n]*\b(?:keys?|fields?|properties)\b[^.!?\n]*/gi;
const QUOTED_WORD = /["'`]([\p{L}_][\p{L}\p{N}_-]{0,63})["'`]/gu;
/** What examples write in place of a value: `"{age}  # must be a single int value"`. */
const TYPES: readonly [form: RegExp, type: string][] = [
  [/\b(?:int|integer)\b/, "integer"],
  [/\b(?:float|number)\b/, "number"],
  [/\bbool(?:ean)?\b|\bTrue or False\b/, "boolean"],
];
/** `must exactly match one of: red; green`. */
const ONE_OF = /\bmatch\b.* one of: (.+)$/;
/** `must adhere to the JSON schema: {"type": "array"}`. */
const OF_SCHEMA = /\bJSON schema: (\{.+\})/;
/** What tells a model how to answer, not about what. */
const INSTRUCTION = /^Respond with .*$|\[\[ ## \w+ ## \]\]/gm;

/** A question without the names of the members that its answer must have. */
export function withoutInstructions(question: string): string {
  const plain = question.replace(INSTRUCTION, "");
  const pieces: string[] = [];
  let end = 0;
  for (const { from, to } of objectsIn(plain)) {
    pieces.push(plain.slice(end, from));
    end = to;
  }
  return pieces.join("") + plain.slice(end);
}

/** The schema of a value that a note describes, by default of a text. */
export function schemaOfNote(note: string): Schema {
  const [, schema = ""] = OF_SCHEMA.exec(note) ?? [];
  const wholeSchema = parsed(schema);
  if (wholeSchema !== undefined) return wholeSchema;
  const [, values = ""] = ONE_OF.exec(note) ?? [];
  if (values !== "") return { enum: values.split(";").map((it) => it.trim()) };
  const type = TYPES.find(([form]) => form.test(note))?.[1];
  return { type: type ?? "string" };
}

/** The schema of what the messages ask for, the last of them first. */
export function writtenSchema({ messages }: ChatRequest): NamedSchema | null {
  const texts = messages.map(messageText)
    .map((text) => text.slice(-LOOK_CHARS)).toReversed();
  const objects = texts.flatMap(objectsIn).map(({ object }) => object);
  const schemaObject = objects.find(isSchema);
  const [example] = objects.map((each) => schemaOfExample(each, 0));
  const schema = schemaObject ?? example ?? schemaOfKeys(texts);
  return schema === undefined
    ? null
    : { param: "messages", name: "", isStrict: false, schema };
}

/**
 * Whether a question without `json_object` asks for JSON, as programs write it for
 * servers that they take for unable to do more, and shows which.
 */
export function asksForJson(
  { messages, tools }: ChatRequest,
  question: string,
): boolean {
  if (tools.length > 0 || !ASKS_FOR_JSON.test(question)) return false;
  return messages.some((message) =>
    objectsIn(messageText(message).slice(-LOOK_CHARS)).length > 0
  );
}

/** A JSON object in a text, and where it stands. */
interface WrittenObject {
  readonly object: Schema;
  readonly from: number;
  readonly to: number;
}

/** The outermost JSON objects in a text. */
function objectsIn(text: string): WrittenObject[] {
  const found: WrittenObject[] = [];
  let from = text.indexOf("{");
  for (let tries = 0; from >= 0 && tries < TRIES_MAX; tries++) {
    const end = endOfObject(text, from);
    const object = end < 0 ? undefined : parsed(text.slice(from, end));
    if (object !== undefined) found.push({ object, from, to: end });
    from = text.indexOf("{", object === undefined ? from + 1 : end);
  }
  return found;
}

function parsed(json: string): Schema | undefined {
  try {
    const value: unknown = JSON.parse(json);
    const isEmpty = !isJsonObject(value) || Object.keys(value).length === 0;
    return isEmpty ? undefined : value;
  } catch {
    return undefined; // Braces of another language.
  }
}

/** The index after the brace that closes the one at `from`, or -1. */
function endOfObject(text: string, from: number): number {
  let depth = 0;
  let isInString = false;
  for (let at = from; at < text.length; at++) {
    const sign = text[at];
    if (isInString && sign === "\\") at += 1;
    else if (sign === '"') isInString = !isInString;
    else if (!isInString && sign === "{") depth += 1;
    else if (!isInString && sign === "}") {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return -1;
}

const isSchema = (object: Schema): boolean =>
  object.type === "object" ||
  SCHEMA_MEMBERS.some((name) => isJsonObject(object[name])) ||
  typeof object.$ref === "string" || Array.isArray(object.anyOf);

/** An object that is no schema shows the shape of the answer. */
function schemaOfExample(value: unknown, depth: number): Schema {
  if (typeof value === "number") return { type: "number" };
  if (typeof value === "boolean") return { type: "boolean" };
  if (Array.isArray(value) && depth < DEPTH_MAX) {
    return { type: "array", items: schemaOfExample(value[0], depth + 1) };
  }
  if (isJsonObject(value) && depth < DEPTH_MAX) {
    const members = Object.entries(value).map(([name, inner]) =>
      [name, schemaOfExample(inner, depth + 1)] as const
    );
    const properties = Object.fromEntries(members);
    return { type: "object", properties, required: Object.keys(value) };
  }
  return schemaOfNote(String(value));
}

/** `JSON with 'setup' and 'punchline' keys`. */
function schemaOfKeys(texts: readonly string[]): Schema | undefined {
  const names = texts.flatMap((text) => text.match(KEYS) ?? [])
    .flatMap((sentence) => [...sentence.matchAll(QUOTED_WORD)])
    .map(([, name = ""]) => name);
  if (names.length === 0) return undefined;
  const properties = Object.fromEntries(
    names.map((name) => [name, { type: "string" }]),
  );
  return { type: "object", properties, required: names };
}
