/** The messages of a request in the dialect of a model server. */
import type { Dialect } from "@gateway/shared/models/dialects";
import type {
  ChatMessage,
  ContentPart,
  ToolCall,
} from "@gateway/shared/openai/chat_message";
import { isJsonObject, textOf } from "@gateway/shared/upstream/json";

/**
 * The text of a tool's result that has only images, for servers that accept images only
 * in messages of the user.
 */
const SEE_BELOW = "The result is in the next user message.";

/**
 * Returns messages in the form that the server accepts: no null content, no empty
 * arguments, and the role `developer`, thoughts and images of tools as it knows them.
 */
export function messagesFor(
  messages: readonly ChatMessage[],
  dialect: Dialect,
): ChatMessage[] {
  const all = messages.map((each) => spelledOut(each, dialect));
  return dialect.tool_media === "user" ? withMediaMoved(all) : all;
}

function spelledOut(message: ChatMessage, dialect: Dialect): ChatMessage {
  const { role, content, tool_calls: calls } = message;
  if (role === "developer" && !dialect.developer_role) {
    return { ...message, role: "system" };
  }
  const base = role === "assistant"
    ? withThoughts(message, dialect.reasoning_field)
    : message;
  if (calls === undefined && content !== null) return base;
  const spelled = { ...base, content: content ?? "" };
  if (calls !== undefined) spelled.tool_calls = calls.map(withArguments);
  return spelled;
}

function withArguments(call: ToolCall): ToolCall {
  if (call.function?.arguments !== "") return call;
  return { ...call, function: { ...call.function, arguments: "{}" } };
}

/**
 * The thoughts of an assistant message under the server's name for them. Clients have
 * them under the name that another server, or another gateway, gave them.
 */
function withThoughts(
  message: ChatMessage,
  field: Dialect["reasoning_field"],
): ChatMessage {
  if (field === "as_sent") return message;
  const { reasoning_content: first, reasoning: second, ...rest } = message;
  const isNamed = field === "reasoning"
    ? first === undefined && typeof second === "string"
    : second === undefined && typeof first === "string";
  if (isNamed) return message;
  const text = textOf(first) || textOf(second) ||
    thoughtsIn(message.reasoning_details);
  // Only texts are understood: anything else under such a name stays.
  if (text === "") return message;
  return { ...rest, [field]: text };
}

/** The texts in OpenRouter's list of thoughts, which may have encrypted ones, too. */
function thoughtsIn(details: unknown): string {
  if (!Array.isArray(details)) return "";
  return details.filter(isJsonObject).map(({ text }) => textOf(text)).join("");
}

/**
 * Images and other media in the results of tools, moved into a message of the user that
 * follows the last result of the turn.
 */
function withMediaMoved(messages: readonly ChatMessage[]): ChatMessage[] {
  const moved: ChatMessage[] = [];
  let parts: ContentPart[] = [];
  for (const message of messages) {
    if (message.role !== "tool" && parts.length > 0) {
      moved.push({ role: "user", content: parts });
      parts = [];
    }
    const media = message.role === "tool" ? mediaOf(message) : [];
    if (media.length === 0) {
      moved.push(message);
      continue;
    }
    const call = `Result of tool call ${message.tool_call_id ?? ""}:`;
    parts.push({ type: "text", text: call }, ...media);
    moved.push({ ...message, content: textsOf(message) || SEE_BELOW });
  }
  if (parts.length > 0) moved.push({ role: "user", content: parts });
  return moved;
}

function mediaOf({ content }: ChatMessage): ContentPart[] {
  return Array.isArray(content)
    ? content.filter(({ type }) => type !== "text")
    : [];
}

function textsOf({ content }: ChatMessage): string {
  if (!Array.isArray(content)) return content ?? "";
  return content.filter(({ type }) => type === "text")
    .map(({ text }) => text ?? "").join("\n");
}
