/** Checks JSON schemas, within bounds, since they come from callers. Pure. */
import { ApiError } from "@gateway/shared/openai/error";
import { isJsonObject, valueAt } from "@gateway/shared/process/error_text";

/** A JSON schema. */
export type Schema = { readonly [keyword: string]: unknown };

/** A schema of a request, and where it stands. */
export interface NamedSchema {
  /** For example `response_format`. */
  readonly param: string;
  readonly name: string;
  /** Every object must be closed, and all its properties required. */
  readonly isStrict: boolean;
  readonly schema: Schema;
}

const KEYWORDS: ReadonlySet<string> = new Set([
  "type",
  "properties",
  "required",
  "additionalProperties",
  "items",
  "enum",
  "const",
  "anyOf",
  "$ref",
  "$defs",
  "definitions",
  "$schema",
  "$id",
  "title",
  "description",
  "default",
  "examples",
  "format",
  "minimum",
  "maximum",
  "exclusiveMinimum",
  "exclusiveMaximum",
  "multipleOf",
  "minItems",
  "maxItems",
  "minLength",
  "maxLength",
]);
const TYPES: ReadonlySet<unknown> = new Set([
  "string",
  "number",
  "integer",
  "boolean",
  "object",
  "array",
  "null",
]);
/** About as many as real servers allow. */
const SCHEMAS_MAX = 2_000;
const REFERENCE_CHARS_MAX = 1_000;

/**
 * Throws an {@link ApiError} for a keyword that `valueFor()` would ignore, and in
 * strict mode for what OpenAI's refuses.
 */
export function checkSchema(namedSchema: NamedSchema): void {
  const { schema: root, isStrict } = namedSchema;
  if (isStrict && root.type !== "object") {
    throw faultIn(namedSchema, "the root must be of type 'object'");
  }
  const schemas: unknown[] = [root];
  // The list grows while it is walked.
  for (const schema of schemas) {
    const fault = schemas.length > SCHEMAS_MAX
      ? "it is too large"
      : faultOf(schema, isStrict);
    if (fault !== undefined) throw faultIn(namedSchema, fault);
    const { $ref, items, anyOf, ...groups } = objectOf(schema);
    if ($ref !== undefined) targetOf($ref, namedSchema);
    const { properties, $defs, definitions } = groups;
    const members = [properties, $defs, definitions].map(objectOf);
    const inner = [...members.flatMap(Object.values), ...listOf(anyOf)];
    schemas.push(...inner.slice(0, SCHEMAS_MAX));
    if (items !== undefined) schemas.push(items);
  }
}

function faultOf(schema: unknown, isStrict: boolean): string | undefined {
  if (!isJsonObject(schema)) return "a schema must be an object";
  const unknown = Object.keys(schema).find((name) => !KEYWORDS.has(name));
  if (unknown !== undefined) {
    return `'${unknown.slice(0, 64)}' is not permitted`;
  }
  const types = [schema.type ?? []].flat();
  if (!types.every((type) => TYPES.has(type))) return "'type' is unknown";
  if (!isStrict || !types.includes("object")) return undefined;
  if (schema.additionalProperties !== false) {
    return "'additionalProperties' is required to be supplied and to be false";
  }
  const required = new Set(listOf(schema.required));
  const missing = Object.keys(objectOf(schema.properties))
    .find((name) => !required.has(name));
  return missing === undefined
    ? undefined
    : "'required' is required to be supplied and to be an array including " +
      `every key in properties. Missing '${missing.slice(0, 64)}'`;
}

/** The error for a schema that is not supported. */
export function faultIn({ param, name }: NamedSchema, why: string): ApiError {
  const message = `Invalid schema for ${param} '${name}': ${why}.`;
  const wireCode = "invalid_json_schema";
  return new ApiError("invalid_value", message, { param, wireCode });
}

/** What a reference within the schema leads to. */
export function targetOf(
  reference: unknown,
  namedSchema: NamedSchema,
): unknown {
  const [root, ...steps] = String(reference).slice(0, REFERENCE_CHARS_MAX)
    .split("/");
  const path = steps.map((step) =>
    step.replaceAll("~1", "/").replaceAll("~0", "~")
  );
  const found = root === "#" ? valueAt(namedSchema.schema, path) : undefined;
  if (found === undefined) throw faultIn(namedSchema, "'$ref' leads nowhere");
  return found;
}

/** The value as an object; anything else as an empty one. */
export function objectOf(value: unknown): Schema {
  return isJsonObject(value) ? value : {};
}

/** The value as a list; anything else as an empty one. */
export function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
