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
import { type WireRequest, wireRequestSchema } from "./request_schema.ts";

/** The models that are offered, by id. */
type Models = ReadonlyMap<string, ModelAbilities>;

type Body = { readonly [name: string]: unknown };

/**
 * Checks the parsed body of `POST /v1/chat/completions` and converts it into the
 * form that travels inside the gateway.
 *
 * Accepts what OpenAI's SDKs send: null for any optional field, `stop` as a string
 * or array, content as a string or parts, `max_completion_tokens` (the smaller
 * bound wins), unknown fields. Does not change `body`.
 *
 * Throws an {@link ApiError} for the first fault, in OpenAI's order: the model
 * (404 `model_not_found` if `models` does not have it), then the fields one by one
 * (400 with `param`), then rules between fields. Messages never repeat prompts.
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
  const checked = wireRequestSchema.safeParse(body);
  const name = typeof body.model === "string" ? body.model : "";
  const model = models.get(name);
  const [issue] = checked.error?.issues ?? [];
  // The model comes first, because it decides what else is allowed.
  if (model === undefined && issue?.path[0] !== "model") {
    throw modelNotFound(name);
  }
  if (model === undefined || !checked.success) throw requestFault(body, issue);
  requireRules(body, checked.data, model);
  const request = toRequest(checked.data);
  const extra = passedFields(body, model.pass_fields);
  requireCleanJson({ ...request, ...extra });
  if (Object.keys(extra).length > 0) request.extra = extra;
  return request;
}

/** The 404 for a model that does not exist or that the key may not use. */
export function modelNotFound(id: string): ApiError {
  const name = clip(id, REQUEST_LIMITS.modelCharsMax);
  return new ApiError(
    "model_not_found",
    `The model \`${name}\` does not exist or you do not have access to it.`,
  );
}

/** Fills in defaults and leaves out fields without effect. */
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
    include_usage: stream_options?.include_usage ?? false,
  };
  const tokensMax = tokensMaxOf(wire);
  if (tokensMax !== null) request.max_tokens = tokensMax.value;
  if (typeof stop === "string") request.stop = [stop];
  else if (stop !== undefined && stop.length > 0) request.stop = stop;
  if (logprobs === true) {
    request.logprobs = true;
    if (top_logprobs !== undefined) request.top_logprobs = top_logprobs;
  }
  // Without tools these two have no effect, and model servers refuse them.
  if (tools.length > 0) {
    request.tools = tools;
    if (tool_choice !== undefined) request.tool_choice = tool_choice;
    if (parallel_tool_calls !== undefined) {
      request.parallel_tool_calls = parallel_tool_calls;
    }
  }
  return request;
}

/** The fields that the model's configuration passes on unchanged. */
function passedFields(
  body: Body,
  names: readonly string[],
): { [name: string]: unknown } {
  const passed = names.filter((name) =>
    Object.hasOwn(body, name) && (body[name] ?? null) !== null
  );
  return Object.fromEntries(passed.map((name) => [name, body[name]]));
}
