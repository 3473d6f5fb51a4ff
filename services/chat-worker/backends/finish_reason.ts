/** Why an answer ended: the words of model servers, and OpenAI's. */
import type { FinishReason } from "@gateway/shared/openai/completion";
import { truncatedAnswer } from "@gateway/shared/upstream/http/errors";

/**
 * The words of various servers for OpenAI's finish reasons, which are a closed enum in
 * SDKs.
 */
const REASONS: readonly [FinishReason, RegExp][] = [
  [
    "length",
    /^(length|max_tokens|max_length|max_output_tokens|model_length|model_context_window_exceeded)$/,
  ],
  [
    "content_filter",
    /^(content_filter|safety|sensitive|refusal|recitation|prohibited_content|blocklist)$/,
  ],
];
const FAILURE =
  /^(abort|aborted|cancelled|error|network_error|insufficient_system_resource|malformed_function_call|timeout)$/;

/**
 * The finish reason for a client. A plain stop after tool calls is `tool_calls`, since
 * agents depend on that word, and `tool_calls` without any call is a stop. An unknown
 * or absent word is a stop too. Throws `upstream_truncated` for a reason that means
 * failure.
 */
export function finishReasonOf(
  word: string,
  hasToolCalls: boolean,
): FinishReason {
  const name = word.toLowerCase();
  if (FAILURE.test(name)) {
    throw truncatedAnswer(`Model server gave the finish reason ${name}`);
  }
  const [reason] = REASONS.find(([, words]) => words.test(name)) ?? [];
  return reason ?? (hasToolCalls ? "tool_calls" : "stop");
}
