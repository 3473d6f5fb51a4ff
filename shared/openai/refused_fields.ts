/**
 * What must not pass to a model server: request fields that would change who pays, who
 * goes first, whose cache or slot it is, what the server fetches, or what code it runs.
 * They are refused, never dropped: a caller must not believe that they had an effect.
 *
 * Sources: the request classes of vLLM 0.12 (`entrypoints/openai/protocol.py`), SGLang
 * 0.5 (`srt/entrypoints/openai/protocol.py`), llama.cpp's `tools/server/README.md`,
 * Ollama's API document, LiteLLM's proxy and OpenRouter's routing documents, November
 * 2026.
 */
import { isJsonObject } from "../process/error_text.ts";

/** Why a field must not pass, as the end of a sentence about the field. */
const REASONS = {
  cost: "it makes the server generate or return more than is counted",
  order: "it changes whose request the server runs first",
  isolation: "it selects a cache, slot or adapter that other callers share",
  fetch: "it makes the server connect to an address",
  code: "it makes the server run code of the request",
  route: "it selects another model, server or account",
  files: "it names a file of the server's machine",
} as const;

/** Why a field is refused, by name: `cost`, `isolation`. */
export type RefusalReason = keyof typeof REASONS;

/** A refused field: its path in the body, and why. */
export interface RefusedField {
  param: string;
  message: string;
}

/** What the bounds of the request and of its model say about the answer. */
export interface OutputBounds {
  /** `max_tokens` of the request; absent if it has none. */
  maxTokens: number | undefined;
}

interface Rule {
  readonly reason: RefusalReason;
  /** Values that change nothing, besides null, as clients send them by default. */
  readonly harmless?: (value: unknown, bounds: OutputBounds) => boolean;
}

const isFalse = (value: unknown) => value === false;
const isZero = (value: unknown) => value === 0;
const isOne = (value: unknown) => value === 1;
const isEmpty = (value: unknown) =>
  value === "" || (Array.isArray(value) && value.length === 0) ||
  (isJsonObject(value) && Object.keys(value).length === 0);

const COST: Rule = { reason: "cost" };
const ISOLATION: Rule = { reason: "isolation", harmless: isEmpty };
const FETCH: Rule = { reason: "fetch", harmless: isEmpty };
const CODE: Rule = { reason: "code", harmless: isEmpty };
const ROUTE: Rule = { reason: "route", harmless: isEmpty };

interface Rules {
  readonly [field: string]: Rule;
}

/** Members of a chat body that make more tokens than are counted. */
const TOKEN_RULES: Rules = {
  best_of: { reason: "cost", harmless: isOne },
  use_beam_search: { reason: "cost", harmless: isFalse },
  echo: { reason: "cost", harmless: isFalse },
  prompt_logprobs: COST,
  return_hidden_states: { reason: "cost", harmless: isFalse },
  return_routed_experts: { reason: "cost", harmless: isFalse },
  // More than the bound on output, or an end of its own choice without any bound.
  min_tokens: {
    reason: "cost",
    harmless: (value, { maxTokens = 0 }) =>
      typeof value === "number" && value <= maxTokens,
  },
  ignore_eos: {
    reason: "cost",
    harmless: (value, { maxTokens }) =>
      value === false || maxTokens !== undefined,
  },
  // Other names of the bound on output, which the gateway does not count by.
  n_predict: COST,
  num_predict: COST,
  n_cmpl: { reason: "cost", harmless: isOne },
};

/**
 * Members of any body, whatever the dialect: a server may speak more than its own.
 */
const COMMON_RULES: Rules = {
  priority: { reason: "order", harmless: isZero },
  cache_salt: ISOLATION,
  extra_key: ISOLATION,
  kv_transfer_params: ISOLATION,
  ec_transfer_params: ISOLATION,
  lora: ISOLATION,
  lora_path: ISOLATION,
  lora_request: ISOLATION,
  lora_id: ISOLATION,
  request_id: ISOLATION,
  rid: ISOLATION,
  session_id: ISOLATION,
  session_params: ISOLATION,
  id_slot: { reason: "isolation", harmless: (value) => value === -1 },
  slot_id: { reason: "isolation", harmless: (value) => value === -1 },
  data_parallel_rank: ISOLATION,
  routed_dp_rank: ISOLATION,
  disagg_prefill_dp_rank: ISOLATION,
  bootstrap_host: FETCH,
  bootstrap_port: FETCH,
  bootstrap_room: FETCH,
  // Loads, unloads or resizes the model for everybody.
  keep_alive: ISOLATION,
  options: ISOLATION,
  logits_processors: CODE,
  custom_logit_processor: CODE,
  custom_params: CODE,
  chat_template: CODE,
  vllm_xargs: CODE,
  api_base: ROUTE,
  base_url: ROUTE,
  api_key: ROUTE,
  api_version: ROUTE,
  custom_llm_provider: ROUTE,
  model_list: ROUTE,
  user_config: ROUTE,
  fallbacks: ROUTE,
  models: ROUTE,
  route: ROUTE,
  provider: ROUTE,
  mock_response: ROUTE,
};

/** Other names for a number of images, which the gateway does not count by. */
const IMAGES: Rule = { reason: "cost", harmless: isOne };

/**
 * Members of requests for media, besides those of all requests. Sources: vLLM-Omni's
 * `entrypoints/openai/protocol`, SGLang's `multimodal_gen`, LocalAI's request schema.
 */
const MEDIA_RULES: Rules = {
  num_images: IMAGES,
  num_images_per_prompt: IMAGES,
  num_outputs_per_prompt: IMAGES,
  batch_size: IMAGES,
  n_iter: IMAGES,
  // Arguments of any name, such as one of the above.
  diffusers_kwargs: { reason: "cost", harmless: isEmpty },
  // Images and files of the operator's account.
  file_id: ISOLATION,
  backend: ROUTE,
};

/** Names such as `output_path`, `audio_path`, `frame_interpolation_model_path`. */
const PATH = /(^|_)(path|dir)$/;
const FILES: Rule = { reason: "files", harmless: isEmpty };

const CHAT_RULES: Rules = { ...TOKEN_RULES, ...COMMON_RULES };
const ALL_MEDIA_RULES: Rules = { ...COMMON_RULES, ...MEDIA_RULES };

/** The names of the fields that are refused, with their reasons, for the documents. */
export const REFUSED_FIELDS: readonly { name: string; reason: string }[] =
  Object.entries({ ...CHAT_RULES, ...MEDIA_RULES }).map(
    ([name, { reason }]) => ({ name, reason: REASONS[reason] }),
  );

/**
 * The first member of a body that must not pass, or null. Null, and what servers take
 * as the default, are no reason to refuse.
 */
export function findRefusedField(
  body: { readonly [name: string]: unknown },
  bounds: OutputBounds,
): RefusedField | null {
  for (const name in body) {
    const rule = Object.hasOwn(CHAT_RULES, name) ? CHAT_RULES[name] : undefined;
    const value = body[name];
    if (rule === undefined || value === null) continue;
    if (rule.harmless?.(value, bounds)) continue;
    return refusalOf(name, rule);
  }
  return null;
}

/**
 * Why a member of a request for media, at any level, must not pass, or null. `name` is
 * without the `[]` of a list. The values of forms are texts: `"1"` is as harmless as 1.
 */
export function refusedMediaField(
  name: string,
  value: unknown,
  path = name,
): RefusedField | null {
  const ownRule = Object.hasOwn(ALL_MEDIA_RULES, name)
    ? ALL_MEDIA_RULES[name]
    : undefined;
  const rule = ownRule ?? (PATH.test(name) ? FILES : undefined);
  if (rule === undefined || value === null) return null;
  const bounds = { maxTokens: undefined };
  const meaning = typeof value === "string" ? valueOf(value) : value;
  return rule.harmless?.(meaning, bounds) ? null : refusalOf(path, rule);
}

const SIMPLE = /^(true|false|-?\d{1,9}|\[\]|\{\})$/;

/** What a short text of a form stands for. */
function valueOf(text: string): unknown {
  const lower = text.toLowerCase();
  return SIMPLE.test(lower) ? JSON.parse(lower) : text;
}

function refusalOf(param: string, { reason }: Rule): RefusedField {
  const message = `Unsupported parameter: '${param}' is not allowed, because ` +
    `${REASONS[reason]}.`;
  return { param, message };
}
