/**
 * What a model server says to agents, so that one turn with one call of a shell tool
 * completes: a request that offers tools gets a call with the command that stands
 * between backquotes in the prompt, and one with the tool's result gets it as text.
 */
import { isJsonObject, type JsonObject } from "@gateway/shared/upstream/json";
import {
  chunk,
  CLOSE,
  jsonResponse,
  lastChunk,
  streamHead,
} from "../support/model_servers/model_answers.ts";
import type { Reply, Step } from "../support/model_servers/scripted_server.ts";

/** How a request may be answered wrongly, or with thinking before. */
export const FAULTS = [
  "429",
  "500",
  "cut",
  "error-event",
  "json",
  "think",
] as const;
/** One of {@link FAULTS}. */
export type Fault = typeof FAULTS[number];

/** What the model says: an optional thought, then a text or a call. */
interface AgentTurn {
  thought: string;
  text: string;
  call: { name: string; input: JsonObject } | null;
}

const THOUGHT = "Let me see.";
const SHELL = /^(Bash|exec_command|shell|shell_command)$/;
const COMMAND = /`([^`\n]+)`/;
const USAGE = { input_tokens: 10, output_tokens: 5 };

/**
 * A server of messages and responses; its first answer has the fault, if there is one.
 */
export function agentReply(fault: Fault | null): Reply {
  let left = fault;
  return (request) => {
    const { path } = request;
    if (path.includes("count_tokens")) return jsonResponse({ input_tokens: 7 });
    const now = left;
    left = null;
    if (now === "429" || now === "500") return refusal(Number(now));
    const dialect = path.includes("/messages") ? MESSAGES : RESPONSES;
    const body = request.json();
    const fields = isJsonObject(body) ? body : {};
    const turn = dialect.turnFor(fields);
    if (now === "think") turn.thought = THOUGHT;
    if (fields.stream !== true || now === "json") {
      return jsonResponse(dialect.whole(turn));
    }
    const events = dialect.events(turn);
    if (now === "cut") return [...streamOf(events.slice(0, 2)), CLOSE];
    if (now === "error-event") {
      return [...streamOf([...events.slice(0, 1), dialect.error]), lastChunk];
    }
    return [...streamOf(events), lastChunk];
  };
}

function refusal(status: number): Step[] {
  const error = {
    type: "api_error",
    message: "Refused on purpose.",
    code: "x",
  };
  const headers: { [name: string]: string } = status === 429
    ? { "retry-after": "1" }
    : {};
  return jsonResponse({ type: "error", error }, { status, headers });
}

interface Dialect {
  turnFor(body: JsonObject): AgentTurn;
  whole(turn: AgentTurn): JsonObject;
  events(turn: AgentTurn): Event[];
  error: Event;
}

type Event = JsonObject & { type: string };

const streamOf = (events: readonly Event[]): Step[] => [
  streamHead(),
  ...events.map((event) =>
    chunk(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
  ),
];

const listOf = (value: unknown): JsonObject[] =>
  Array.isArray(value) ? value.filter(isJsonObject) : [];

/** All text in a value, whatever its blocks are called. */
function textIn(value: unknown): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(textIn).join("\n");
  if (!isJsonObject(value)) return "";
  return textIn(value.text ?? value.content ?? value.output ?? "");
}

/** A call of the first shell among the tools, or a greeting. */
function firstAnswer(prompt: string, tools: readonly JsonObject[]): AgentTurn {
  const [, command] = COMMAND.exec(prompt) ?? [];
  const tool = tools.find(({ name }) => SHELL.test(String(name)));
  if (tool === undefined || command === undefined) {
    return { thought: "", text: "Hello there.", call: null };
  }
  const input: JsonObject = tool.name === "Bash"
    ? { command, description: "Reads the note" }
    : { cmd: command };
  return { thought: "", text: "", call: { name: String(tool.name), input } };
}

const resultOf = (text: string): AgentTurn => (
  { thought: "", text: `Result: ${text}`, call: null }
);

const MESSAGES: Dialect = {
  turnFor({ messages, tools }) {
    // What came after the last answer; agents may end with a message of the system.
    const all = listOf(messages);
    const since = all.slice(
      all.findLastIndex(({ role }) => role === "assistant") + 1,
    );
    const blocks = since.flatMap(({ content }) => listOf(content));
    const result = blocks.findLast(({ type }) => type === "tool_result");
    if (result !== undefined) return resultOf(textIn(result.content));
    const users = since.filter(({ role }) => role === "user");
    return firstAnswer(textIn(users), listOf(tools));
  },
  whole(turn) {
    return {
      id: "msg_1",
      type: "message",
      role: "assistant",
      model: "theirs",
      content: blocksOf(turn),
      stop_reason: turn.call === null ? "end_turn" : "tool_use",
      stop_sequence: null,
      usage: USAGE,
    };
  },
  events(turn) {
    const { content, stop_reason, ...message } = MESSAGES.whole(turn);
    const blocks = listOf(content).flatMap((block, index): Event[] => {
      const { start, delta } = pieceOf(block);
      return [
        { type: "content_block_start", index, content_block: start },
        { type: "content_block_delta", index, delta },
        { type: "content_block_stop", index },
      ];
    });
    return [
      {
        type: "message_start",
        message: { ...message, content: [], stop_reason: null },
      },
      ...blocks,
      {
        type: "message_delta",
        delta: { stop_reason, stop_sequence: null },
        usage: { output_tokens: USAGE.output_tokens },
      },
      { type: "message_stop" },
    ];
  },
  error: {
    type: "error",
    error: { type: "overloaded_error", message: "Overloaded on purpose." },
  },
};

function blocksOf({ thought, text, call }: AgentTurn): JsonObject[] {
  const blocks: JsonObject[] = [];
  if (thought !== "") {
    blocks.push({ type: "thinking", thinking: thought, signature: "" });
  }
  if (text !== "") blocks.push({ type: "text", text });
  if (call !== null) blocks.push({ type: "tool_use", id: "toolu_1", ...call });
  return blocks;
}

/** How a block begins in a stream, and what fills it. */
function pieceOf(block: JsonObject): { start: JsonObject; delta: JsonObject } {
  switch (block.type) {
    case "thinking":
      return {
        start: { ...block, thinking: "" },
        delta: { type: "thinking_delta", thinking: block.thinking },
      };
    case "text":
      return {
        start: { ...block, text: "" },
        delta: { type: "text_delta", text: block.text },
      };
    default: {
      const json = JSON.stringify(block.input);
      return {
        start: { ...block, input: {} },
        delta: { type: "input_json_delta", partial_json: json },
      };
    }
  }
}

const RESPONSES: Dialect = {
  turnFor({ input, tools }) {
    const items = typeof input === "string"
      ? [{ role: "user", content: input }]
      : listOf(input);
    const last = items.at(-1) ?? {};
    if (/_call_output$/.test(String(last.type))) {
      return resultOf(textIn(last.output));
    }
    const users = items.filter(({ role }) => role === "user");
    return firstAnswer(textIn(users), listOf(tools));
  },
  whole(turn) {
    return {
      id: "resp_1",
      object: "response",
      created_at: 1_767_622_290,
      model: "theirs",
      status: "completed",
      output: itemsOf(turn),
      parallel_tool_calls: false,
      tool_choice: "auto",
      tools: [],
      error: null,
      incomplete_details: null,
      usage: { ...USAGE, total_tokens: 15 },
    };
  },
  events(turn) {
    const response = RESPONSES.whole(turn);
    const firstResponse = {
      ...response,
      status: "in_progress",
      output: [],
      usage: null,
    };
    const items = listOf(response.output)
      .flatMap((item, output_index): Event[] => [
        { type: "response.output_item.added", output_index, item },
        { type: "response.output_item.done", output_index, item },
      ]);
    const events: Event[] = [
      { type: "response.created", response: firstResponse },
      ...items,
      { type: "response.completed", response },
    ];
    return events.map((event, sequence_number) => (
      { ...event, sequence_number }
    ));
  },
  error: {
    type: "response.failed",
    response: {
      id: "resp_1",
      status: "failed",
      output: [],
      error: { code: "server_error", message: "Failed on purpose." },
    },
  },
};

function itemsOf({ thought, text, call }: AgentTurn): JsonObject[] {
  const items: JsonObject[] = [];
  if (thought !== "") {
    const content = [{ type: "reasoning_text", text: thought }];
    items.push({ type: "reasoning", id: "rs_1", summary: [], content });
  }
  if (text !== "") {
    const content = [{ type: "output_text", text, annotations: [] }];
    const status = "completed";
    items.push({
      type: "message",
      id: "msg_1",
      role: "assistant",
      status,
      content,
    });
  }
  if (call !== null) {
    items.push({
      type: "function_call",
      id: "fc_1",
      call_id: "call_1",
      name: call.name,
      arguments: JSON.stringify(call.input),
      status: "completed",
    });
  }
  return items;
}
