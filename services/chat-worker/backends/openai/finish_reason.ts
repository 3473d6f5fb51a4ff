import type { FinishReason } from "@gateway/shared/openai/chat";
import { truncatedAnswer } from "../upstream_error.ts";

/** Words of servers in use beside OpenAI's own. Closed enums in SDKs allow no others. */
const REASONS: ReadonlyMap<string, FinishReason> = new Map([
  ["stop", "stop"],
  ["eos", "stop"],
  ["eos_token", "stop"],
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["length", "length"],
  ["max_tokens", "length"],
  ["max_length", "length"],
  ["max_output_tokens", "length"],
  ["model_length", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_calls", "tool_calls"],
  ["tool_use", "tool_calls"],
  ["function_call", "tool_calls"],
  ["content_filter", "content_filter"],
  ["safety", "content_filter"],
  ["sensitive", "content_filter"],
  ["refusal", "content_filter"],
  ["recitation", "content_filter"],
  ["prohibited_content", "content_filter"],
  ["blocklist", "content_filter"],
]);

/** Words that say the answer is not complete. */
const FAILURES: ReadonlySet<string> = new Set([
  "abort",
  "aborted",
  "cancelled",
  "error",
  "network_error",
  "insufficient_system_resource",
  "malformed_function_call",
  "timeout",
]);

/**
 * The finish reason for a client. A plain stop after tool calls is `tool_calls`,
 * since agents loop on that word; an unknown word is a stop. Throws
 * `upstream_truncated` for a reason that means failure.
 */
export function finishReasonOf(
  word: string,
  hasToolCalls: boolean,
): FinishReason {
  const known = word.toLowerCase();
  if (FAILURES.has(known)) {
    throw truncatedAnswer(`Model server gave the finish reason ${known}`);
  }
  const reason = REASONS.get(known) ?? "stop";
  return reason === "stop" && hasToolCalls ? "tool_calls" : reason;
}
