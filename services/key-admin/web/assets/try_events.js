// What events of chats say, whichever endpoint they are of.

/** Reads a chunk of chat completions. */
function ofChunk({ error, usage, choices: [choice] = [] }) {
  const { delta = {}, finish_reason: finish } = choice ?? {};
  const { content, reasoning_content: thinking, tool_calls = [] } = delta;
  return {
    error,
    input: usage?.prompt_tokens,
    output: usage?.completion_tokens,
    finish,
    content,
    thinking,
    calls: tool_calls.map(({ index, ...call }) => ({
      index,
      start: { ...call, function: { ...call.function, arguments: "" } },
      text: call.function?.arguments,
    })),
  };
}

/** Reads an event of `/v1/responses`. */
function ofResponses({ type, delta, item, output_index: index, response }) {
  const { status, usage, error } = response ?? {};
  switch (type) {
    case "response.output_text.delta":
      return { content: delta };
    case "response.reasoning_text.delta":
    case "response.reasoning_summary_text.delta":
      return { thinking: delta };
    case "response.output_item.done":
      return item.type === "function_call"
        ? { calls: [{ index, start: item }] }
        : {};
    case "response.completed":
    case "response.incomplete":
    case "response.failed":
      return {
        error,
        input: usage?.input_tokens,
        output: usage?.output_tokens,
        finish: status,
        isLast: true,
      };
    default:
      return {};
  }
}

/** Reads an event of `/v1/messages`. */
function ofMessages({ type, message, index, content_block, delta, ...event }) {
  const { stop_reason: finish, text, thinking, partial_json } = delta ?? {};
  switch (type) {
    case "message_start":
      return { input: inputOf(message.usage) };
    case "content_block_start":
      return content_block.type === "tool_use"
        ? { calls: [{ index, start: { ...content_block, input: "" } }] }
        : {};
    case "content_block_delta":
      return partial_json === undefined
        ? { content: text, thinking }
        : { calls: [{ index, text: partial_json }] };
    case "message_delta":
      return { finish, output: event.usage?.output_tokens };
    default:
      return { isLast: type === "message_stop" };
  }
}

/** Anthropic's input does not contain what concerns the cache. */
const inputOf = (usage) =>
  (usage?.input_tokens ?? 0) + (usage?.cache_read_input_tokens ?? 0) +
  (usage?.cache_creation_input_tokens ?? 0);

/** Reads an event of any endpoint. */
export function piecesIn({ type, ...event }) {
  if (type === undefined) return ofChunk(event);
  if (type === "error") return { error: event.error ?? event };
  return type.startsWith("response.")
    ? ofResponses({ type, ...event })
    : ofMessages({ type, ...event });
}

/** The data of each event of a stream. */
export async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ")) yield line.slice("data: ".length);
    }
  }
}
