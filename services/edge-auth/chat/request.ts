import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import {
  clip,
  isJsonObject,
  nameOfType,
} from "@gateway/shared/process/error_text";
import { requestFault } from "./request_fault.ts";
import {
  type ModelAbilities,
  requireCleanJson,
  requireRules,
  tokensMaxOf,
} from "./request_rules.ts";
import {
  wireModelSchema,
  type WireRequest,
  wireRequestSchema,
} from "./request_schema.ts";

/** What is offered, by id. */
type Models = ReadonlyMap<string, ModelAbilities>;

type Body = { readonly [name: string]: unknown };

/**
 * Checks the parsed body of `POST /v1/chat/completions` and brings it into the
 * one form that travels in the gateway.
 *
 * Accepts what OpenAI's SDKs send: null for any optional field, `stop` as string
 * or array, content as string or parts, `max_completion_tokens` (the smaller
 * bound wins), fields nobody knows. Nothing of `body` is changed.
 *
 * Throws an {@link ApiError} for the first fault, in OpenAI's order: the model
 * (404 `model_not_found` when `models` has none of that name), then the fields
 * one by one (400 with `param`), then what concerns several of them. Messages
 * never repeat what people wrote.
 *
 * Source: OpenAI's API reference and observed answers, September 2026.
 */
export function parseChatRequest(body: unknown, models: Models): ChatRequest {
  if (!isJsonObject(body)) {
    throw new ApiError(
      "invalid_type",
      "Invalid request body: expected an object, but got " +
        `${nameOfType(body)}.`,
    );
  }
  const model = findModel(body, models);
  const checked = wireRequestSchema.safeParse(body);
  if (!checked.success) throw requestFault(body, checked.error.issues);
  requireRules(body, checked.data, model);
  const request = toRequest(checked.data);
  const extra = passedFields(body, model.passFields);
  requireCleanJson({ ...request, ...extra });
  if (extra !== null) request.extra = extra;
  return request;
}

/** The model that the body names. It comes first because it decides what else is allowed. */
function findModel(body: Body, models: Models): ModelAbilities {
  const name = Object.hasOwn(body, "model") ? body.model : undefined;
  const model = typeof name === "string" ? models.get(name) : undefined;
  if (model !== undefined) return model;
  const checked = wireModelSchema.safeParse({ model: name });
  if (!checked.success) throw requestFault(body, checked.error.issues);
  throw modelNotFound(checked.data.model);
}

/** The 404 for a model that does not exist, or that a key may not know of. */
export function modelNotFound(id: string): ApiError {
  const name = clip(id, REQUEST_LIMITS.modelCharsMax);
  return new ApiError(
    "model_not_found",
    `The model \`${name}\` does not exist or you do not have access to it.`,
  );
}

/** Fills in defaults, and leaves out what says nothing. */
function toRequest(wire: WireRequest): ChatRequest {
  const {
    max_tokens: _older,
    max_completion_tokens: _newer,
    stream_options,
    stop,
    tools = [],
    tool_choice,
    parallel_tool_calls,
    logprobs,
    top_logprobs,
    ...rest
  } = wire;
  const request: ChatRequest = {
    ...rest,
    stream: rest.stream ?? false,
    include_usage: stream_options?.include_usage ?? false,
    n: rest.n ?? 1,
  };
  const tokensMax = tokensMaxOf(wire);
  if (tokensMax !== null) request.max_tokens = tokensMax.value;
  if (typeof stop === "string") request.stop = [stop];
  else if (stop !== undefined && stop.length > 0) request.stop = stop;
  if (logprobs === true) {
    request.logprobs = true;
    if (top_logprobs !== undefined) request.top_logprobs = top_logprobs;
  }
  // Without tools the other two say nothing; model servers refuse them.
  if (tools.length > 0) {
    request.tools = tools;
    if (tool_choice !== undefined) request.tool_choice = tool_choice;
    if (parallel_tool_calls !== undefined) {
      request.parallel_tool_calls = parallel_tool_calls;
    }
  }
  return request;
}

/** The fields that a model's configuration lets through to its backends as they are; null: none. */
function passedFields(
  body: Body,
  names: readonly string[],
): { [name: string]: unknown } | null {
  const passed = names.filter((name) =>
    Object.hasOwn(body, name) && (body[name] ?? null) !== null
  );
  if (passed.length === 0) return null;
  return Object.fromEntries(passed.map((name) => [name, body[name]]));
}
