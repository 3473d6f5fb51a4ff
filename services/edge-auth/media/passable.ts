/** What a request for media must not pass to a model server. */
import type { ModelConfig } from "@gateway/shared/models/catalog";
import { fieldError } from "@gateway/shared/openai/error";
import type { Fields } from "@gateway/shared/openai/form_fields";
import { guardJson } from "@gateway/shared/openai/json_body";
import { refusedMediaField } from "@gateway/shared/openai/refused_fields";
import { isJsonObject } from "@gateway/shared/process/error_text";
import { listName } from "../http/read_form.ts";
import {
  fetchRefusal,
  requireAllowedFields,
} from "../requests/body/parse_request.ts";

/** Members that are texts to read, whatever they contain. */
const TEXTS = new Set([
  "prompt",
  "prompt_2",
  "negative_prompt",
  "system_prompt",
  "input",
  "instructions",
  "instruct",
  "ref_text",
  "text",
  "lyrics",
  "caption",
  "ambient_sound",
  "voice_description",
  "hotwords",
  "user",
  "safety_identifier",
  "metadata",
]);
const JSON_START = /^\s*[{[]/;
const DATA_URL = /^data:/i;
const FILE_URL = /^\s*file:/i;

/**
 * Throws the `ApiError` for the first field that must not pass: one of the table, an
 * address that the server of the model must not fetch, or one that the operator
 * excludes. `names` are those of the fields that the API has.
 */
export function requirePassable(
  fields: Fields,
  names: ReadonlySet<string>,
  model: ModelConfig,
): void {
  for (const [name, value] of Object.entries(fields)) {
    check(value, { name: listName(name), path: name, model });
  }
  requireAllowedFields(fields, {
    has: (name) => names.has(listName(name)),
  }, model);
}

interface Place {
  /** The name of the member, or of the list that it is in. */
  readonly name: string;
  /** The path from the top of the body, as `param` of an error. */
  readonly path: string;
  readonly model: ModelConfig;
}

function check(value: unknown, place: Place): void {
  const { name, path, model } = place;
  const refusal = refusedMediaField(name, value, path);
  if (refusal !== null) {
    throw fieldError("unsupported_parameter", refusal.param, refusal.message);
  }
  if (TEXTS.has(name)) return;
  if (typeof value === "string") checkText(value, place);
  else if (Array.isArray(value)) {
    for (const [index, each] of value.entries()) {
      check(each, { name, path: `${path}[${index}]`, model });
    }
  } else if (isJsonObject(value)) {
    for (const [inner, each] of Object.entries(value)) {
      check(each, { name: inner, path: `${path}.${inner}`, model });
    }
  }
}

function checkText(text: string, place: Place): void {
  const inner = JSON_START.test(text) ? parseOrNothing(text) : undefined;
  // Forms have objects as JSON.
  if (typeof inner === "object") return check(inner, place);
  // Not a regular expression: a file in base64 has megabytes.
  const isAddress = text.includes("://") && !DATA_URL.test(text);
  if (!isAddress && !FILE_URL.test(text)) return;
  const { path, model } = place;
  if (model.fetches_urls && !FILE_URL.test(text)) return;
  throw fieldError(
    "invalid_value",
    path,
    `${fetchRefusal(path, model)}; addresses of files never pass.`,
  );
}

/** The value of a text that is JSON, else undefined. */
function parseOrNothing(text: string): unknown {
  guardJson(text);
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
