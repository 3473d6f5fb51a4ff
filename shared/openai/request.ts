import { REQUEST_LIMITS } from "../limits.ts";
import type { Catalog, ModelConfig } from "../models/catalog.ts";
import type { ChatRequest } from "./chat.ts";
import { requireCleanJson } from "./clean_json.ts";
import { ApiError } from "./error.ts";
import { normaliseRequest, passedFields } from "./normalise.ts";
import { requestFault } from "./request_fault.ts";
import {
  requireAnsweredToolCalls,
  requireChoicesInRange,
  requireChosenTool,
  requireContent,
  requireLogprobsForTop,
  requireStreamForOptions,
  requireSupportedFields,
  requireTokensInRange,
  requireVision,
} from "./request_rules.ts";
import { wireModelSchema, wireRequestSchema } from "./request_schema.ts";
import { clip, isJsonObject, nameOfType } from "../process/error_text.ts";

/**
 * Checks the parsed body of `POST /v1/chat/completions` and brings it into the
 * one form that travels in the gateway.
 *
 * Accepts what OpenAI's SDKs send: null for any optional field, `stop` as string
 * or array, content as string or parts, `max_completion_tokens` (the smaller
 * bound wins), fields nobody knows. Nothing of `body` is changed.
 *
 * Throws an {@link ApiError} for the first fault, in OpenAI's order: the model
 * (404 `model_not_found` when `catalog` has none of that name), then the fields
 * one by one (400 with `param`), then what concerns several of them, missing
 * content last. Messages never repeat what people wrote.
 *
 * Source: OpenAI's API reference and observed answers, September 2026.
 */
export function parseChatRequest(body: unknown, catalog: Catalog): ChatRequest {
  if (!isJsonObject(body)) {
    throw new ApiError(
      "invalid_type",
      "Invalid type for the request body: expected an object, but got " +
        `${nameOfType(body)} instead.`,
    );
  }
  const model = findModel(body, catalog);
  const checked = wireRequestSchema.safeParse(body);
  if (!checked.success) throw requestFault(body, checked.error.issues);
  const wire = checked.data;
  const request = normaliseRequest(wire);
  requireSupportedFields(body, model);
  requireLogprobsForTop(wire);
  requireVision(request.messages, model);
  requireAnsweredToolCalls(request.messages);
  requireChosenTool(wire);
  requireTokensInRange(wire, model);
  requireChoicesInRange(request, model);
  requireStreamForOptions(wire);
  requireCleanJson(request);
  requireContent(wire, request);
  const extra = passedFields(body, model.passFields);
  if (extra !== null) {
    requireCleanJson(extra);
    request.extra = extra;
  }
  return request;
}

/** The model that the body names. It comes first because it decides what else is allowed. */
function findModel(
  body: { readonly [name: string]: unknown },
  catalog: Catalog,
): ModelConfig {
  const name = Object.hasOwn(body, "model") ? body.model : undefined;
  const model = typeof name === "string" ? catalog.get(name) : undefined;
  if (model !== undefined) return model;
  const checked = wireModelSchema.safeParse({ model: name });
  if (!checked.success) throw requestFault(body, checked.error.issues);
  throw modelNotFound(checked.data.model);
}

/** The 404 for a model that does not exist, or that a key may not know of. */
export function modelNotFound(id: string): ApiError {
  return new ApiError(
    "model_not_found",
    `The model \`${
      clip(id, REQUEST_LIMITS.modelCharsMax)
    }\` does not exist or you do not have access to it.`,
  );
}
