/** What an SDK makes of the body of a chat completion, streamed or whole. */

type Json = { [name: string]: unknown };

/** Members of a delta that are pieces of one text. */
const TEXTS = new Set(["content", "reasoning_content", "reasoning", "refusal"]);

/**
 * The message of the first choice, with `finish_reason`, the number of `finishes`, the
 * `usage`, the `error` if there is one, and the `body` of a whole answer. Of a stream,
 * `chunk` and `choice` have all their members, each with its last value.
 */
export function assembled(text: string): Json {
  return text.startsWith("{") ? ofBody(JSON.parse(text)) : ofEvents(text);
}

function ofBody(body: Json): Json {
  const [choice] = listOf(body.choices);
  return {
    ...objectOf(choice?.message),
    finish_reason: choice?.finish_reason,
    finishes: 1,
    usage: body.usage,
    error: body.error,
    body,
  };
}

function ofEvents(text: string): Json {
  const message: Json = {};
  const chunks = text.split("\n")
    .filter((line) => line.startsWith("data: {"))
    .map((line) => objectOf(JSON.parse(line.slice("data: ".length))));
  let finishes = 0;
  message.chunk = Object.assign({}, ...chunks);
  message.choice = Object.assign(
    {},
    ...chunks.map(({ choices }) => listOf(choices)[0]),
  );
  for (const { choices, usage, error } of chunks) {
    if (error !== undefined) message.error = error;
    if (usage) message.usage = usage;
    const [choice] = listOf(choices);
    if (choice === undefined) continue;
    addDelta(message, objectOf(choice.delta));
    if (choice.finish_reason === null) continue;
    finishes += 1;
    message.finish_reason = choice.finish_reason;
  }
  message.finishes = finishes;
  return message;
}

function addDelta(message: Json, delta: Json): void {
  for (const [name, value] of Object.entries(delta)) {
    if (name === "tool_calls") addCalls(message, listOf(value));
    else if (TEXTS.has(name)) {
      message[name] = String(message[name] ?? "") + String(value ?? "");
    } else message[name] = value;
  }
}

function addCalls(message: Json, fragments: Json[]): void {
  const calls = listOf(message.tool_calls);
  message.tool_calls = calls;
  for (const { index, function: called, custom, ...rest } of fragments) {
    const call = calls[Number(index)] ?? {};
    calls[Number(index)] = call;
    Object.assign(call, rest);
    if (called !== undefined) {
      call.function = extended(call.function, called, "arguments");
    }
    if (custom !== undefined) {
      call.custom = extended(call.custom, custom, "input");
    }
  }
}

/** What calls have so far, and a fragment more: its text is appended. */
function extended(before: unknown, fragment: unknown, member: string): Json {
  const earlier = objectOf(before);
  const { [member]: more = "", ...members } = objectOf(fragment);
  const text = String(earlier[member] ?? "") + String(more);
  return { ...earlier, ...members, [member]: text };
}

function listOf(value: unknown): Json[] {
  return Array.isArray(value) ? value : [];
}

function objectOf(value: unknown): Json {
  return typeof value === "object" && value !== null ? { ...value } : {};
}
