import { clip } from "../process/error_text.ts";
import type { ChatMessage, WireRequest } from "./chat.ts";

/** A broken rule: the field, and a message that is a whole sentence. */
interface RuleFault {
  path: PropertyKey[];
  message: string;
}

/** The first fault between the fields of a request, which a schema cannot express. */
export function ruleFault(request: WireRequest): RuleFault | null {
  const fault = toolHistoryFault(request.messages) ?? toolChoiceFault(request);
  if (fault !== null) return fault;
  const onlyWith = (param: string, other: string): RuleFault => ({
    path: [param],
    message:
      `The '${param}' parameter is only allowed when '${other}' is enabled.`,
  });
  if ((request.top_logprobs ?? 0) > 0 && request.logprobs !== true) {
    return onlyWith("top_logprobs", "logprobs");
  }
  return request.stream_options !== undefined && !request.stream
    ? onlyWith("stream_options", "stream")
    : null;
}

/**
 * Every call of an assistant turn is answered by a `tool` message before the next
 * turn, and every `tool` message answers one. Call ids may repeat in later turns.
 */
function toolHistoryFault(messages: readonly ChatMessage[]): RuleFault | null {
  let asked: ReadonlySet<string> = new Set();
  let open = new Set<string>();
  let askedAt = 0;
  for (const [index, message] of messages.entries()) {
    if (message.role !== "tool") {
      if (open.size > 0) break;
      asked = new Set(message.tool_calls?.map(({ id }) => id));
      open = new Set(asked);
      askedAt = index;
    } else if (asked.has(message.tool_call_id ?? "")) {
      open.delete(message.tool_call_id ?? "");
    } else {
      return {
        path: ["messages", index],
        message: "Messages with role 'tool' must respond to a preceding " +
          "message with 'tool_calls' that contains their 'tool_call_id'.",
      };
    }
  }
  const [first] = open;
  return first === undefined ? null : {
    path: ["messages", askedAt],
    message:
      "An assistant message with 'tool_calls' must be followed by tool " +
      "messages responding to each 'tool_call_id', but " +
      `'${clip(first)}' has none.`,
  };
}

function toolChoiceFault(
  { tools = [], tool_choice: choice }: WireRequest,
): RuleFault | null {
  const name = typeof choice === "object" ? choice.function.name : null;
  if (name === null && choice !== "required") return null;
  if (tools.length === 0) {
    return {
      path: ["tool_choice"],
      message: "'tool_choice' is only allowed when 'tools' are specified.",
    };
  }
  const isDeclared = name === null ||
    tools.some((tool) => tool.function.name === name);
  return isDeclared ? null : {
    path: ["tool_choice", "function", "name"],
    message: `Invalid value for 'tool_choice': no function named '${name}' ` +
      "was specified in the 'tools' parameter.",
  };
}
