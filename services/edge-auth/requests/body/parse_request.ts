/** Checks what the bodies of all endpoints have in common, with OpenAI's errors. */
import { ApiError, fieldError } from "@gateway/shared/openai/error";
import { requestFault } from "@gateway/shared/openai/request_fault";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import type { Catalog, ModelConfig } from "@gateway/shared/models/catalog";
import type { ModelKind } from "@gateway/shared/models/kinds";
import {
  clip,
  formatPath,
  isJsonObject,
  valueAt,
} from "@gateway/shared/process/error_text";
import type { z } from "zod";
import { noWorker } from "../../dispatch/run_errors.ts";
import { keepProtoMembers } from "./proto_members.ts";

const PATH_OF_KIND: Readonly<Record<ModelKind, string>> = {
  chat: "/v1/chat/completions",
  image: "/v1/images/generations",
  speech: "/v1/audio/speech",
  transcription: "/v1/audio/transcriptions",
  video: "/v1/videos",
  embedding: "/v1/embeddings",
  rerank: "/v1/rerank",
};

/**
 * Checks a body and converts it by `schema`; `model` of the result is the id, whatever
 * the client calls the model. Throws an {@link ApiError} for the first fault, in
 * OpenAI's order: the model (404 `model_not_found`), the fields one by one (400 with
 * `param`), then what is no clean JSON.
 */
export function parseRequest<Request extends { model: string }>(
  body: unknown,
  { schema, kind, models }: {
    schema: z.ZodType<Request>;
    /** Null: of any kind. */
    kind: ModelKind | null;
    models: Catalog;
  },
): { request: Request; model: ModelConfig } {
  const id = isJsonObject(body) && typeof body.model === "string"
    ? body.model
    : "";
  const model = models.find(id);
  const { data: request, error } = schema.safeParse(body);
  // The model comes first, because it decides what else is allowed.
  const [field = "model"] = error?.issues[0]?.path ?? ["body"];
  if (field !== "model") {
    if (model === undefined) {
      throw models.isPending ? noWorker() : modelNotFound(id);
    }
    if (kind !== null && model.kind !== kind) throw wrongKind(model);
  }
  if (model === undefined || request === undefined) {
    throw requestFault(body, error);
  }
  keepProtoMembers(body, request);
  const clean = cleanJson(request);
  const isId = clean.model === model.id;
  return { request: isId ? clean : { ...clean, model: model.id }, model };
}

/**
 * Throws the `ApiError` for the first member of a body that the operator excludes from
 * a model. `names` are those of the fields that the API has.
 */
export function requireAllowedFields(
  body: { readonly [name: string]: unknown },
  names: { has(name: string): boolean },
  { id, refuse_fields: refusedNames, only_known_fields: isClosed }: ModelConfig,
): void {
  const isExcluded = (name: string) =>
    (body[name] ?? null) !== null &&
    (refusedNames.includes(name) || (isClosed && !names.has(name)));
  const excluded = Object.keys(body).find(isExcluded);
  if (excluded === undefined) return;
  const message = `Unsupported parameter: '${excluded}'. ` +
    `The model '${id}' is configured not to take it.`;
  throw fieldError("unsupported_parameter", excluded, message);
}

/** The `ApiError` for an address that the server of a model must not fetch. */
export function mustNotFetch(param: string, model: ModelConfig): ApiError {
  const message = model.fetches_urls
    ? `Invalid '${param}': addresses of files never pass.`
    : `${fetchRefusal(param, model)}.`;
  return fieldError("unsupported_value", param, message);
}

/** Why such an address is refused, as a sentence without its full stop. */
export function fetchRefusal(param: string, { id }: ModelConfig): string {
  return `Invalid '${param}': expected a 'data:' URL, because the server of the ` +
    `model '${id}' must not fetch addresses. If it may, the operator sets ` +
    "the model's 'fetches_urls'";
}

/** Throws the `ApiError` for a number above a bound of its model. */
export function requireAtMost(
  param: string,
  value: number,
  most: number,
): void {
  if (value <= most) return;
  throw fieldError(
    "integer_above_max_value",
    param,
    `Invalid '${param}': expected a value <= ${most}, but got ${value}.`,
  );
}

/** Throws the `ApiError` for a text above a bound of its model, in characters. */
export function requireCharacters(
  param: string,
  text: string,
  most: number,
): void {
  const { length } = text;
  // A character has one or two units. A far longer text is not worth counting.
  if (length <= most) return;
  if (length <= 2 * most && [...text].length <= most) return;
  throw fieldError(
    "string_above_max_length",
    param,
    `Invalid '${param}': expected at most ${most} characters, but got a ` +
      `string of length ${length}.`,
  );
}

/** The 404 for a model that does not exist or that the key may not use. */
export function modelNotFound(id: string): ApiError {
  const name = clip(id, REQUEST_LIMITS.modelCharsMax);
  return new ApiError(
    "model_not_found",
    `The model \`${name}\` does not exist or you do not have access to it.`,
  );
}

function wrongKind({ id, kind }: ModelConfig): ApiError {
  return new ApiError(
    "model_not_found",
    `The model \`${id}\` is not for this endpoint. Use it with ` +
      `${PATH_OF_KIND[kind]}.`,
  );
}

/**
 * The value as it can be written as JSON again: halves of surrogate pairs, which
 * truncated text has and UTF-8 cannot express, become U+FFFD. Throws an `ApiError` for
 * numbers too large for a double, which would become null.
 */
export function cleanJson<Value>(value: Value): Value {
  const path = uncleanPath(value);
  if (path === null) return value;
  const unclean = valueAt(value, path);
  const isText = typeof unclean !== "number" || Number.isFinite(unclean);
  if (isText) return cleanJson(wellFormed(value));
  const param = formatPath(path.map((name) => wellFormed(name)));
  const message =
    `Invalid '${param}': expected a number that fits into a double.`;
  throw fieldError("invalid_value", param, message);
}

/** The path of the first value that is not clean, or null. The depth is bounded. */
function uncleanPath(value: unknown): PropertyKey[] | null {
  if (typeof value === "string") return value.isWellFormed() ? null : [];
  if (typeof value === "number") return Number.isFinite(value) ? null : [];
  if (Array.isArray(value)) {
    // A body may have half a million lists: entries() would take seven times as long.
    for (let index = 0; index < value.length; index++) {
      const path = uncleanPath(value[index]);
      if (path !== null) return [index, ...path];
    }
  } else if (isJsonObject(value)) {
    for (const name in value) {
      const path = name.isWellFormed() ? uncleanPath(value[name]) : [];
      if (path !== null) return [name, ...path];
    }
  }
  return null;
}

/** A copy with U+FFFD for each half of a surrogate pair, in names too. */
function wellFormed<Value>(value: Value): Value;
function wellFormed(value: unknown): unknown {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) return value.map((member) => wellFormed(member));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [
      name.toWellFormed(),
      wellFormed(member),
    ]),
  );
}
