/** Which tools are called, and with what. Pure. */
import type { Tool } from "@gateway/shared/openai/chat";
import { newRequestId } from "@gateway/shared/process/ids";
import { PromptValues } from "./prompt_values.ts";
import type { NamedSchema } from "./json_schema.ts";
import { type Random, tokenize } from "./language.ts";
import { type ChatRequest, lastTurn } from "./request.ts";
import { valueFor } from "./schema_value.ts";
import type { Step } from "./step.ts";

const LOOK_CHARS = 2_000;
const LONG_WORD = /[\p{L}\p{N}]{4,}/gu;
const CALLS_MAX = 4;

/** A tool that runs what it is given. It gets only a command that does no harm. */
const SHELL = /shell|bash|terminal|exec|command/i;
/** Words by which a prompt means such a tool, whatever its name. */
const SHELL_WORDS = ["shell", "bash", "terminal", "command"];
const COMMAND_FIELD = /^(?:cmd|command|commands|script)$/i;
const COMMAND = ["echo", "Hello from the model simulator"] as const;
const CODE_FIELD = /^(?:code|source|program)$/i;
const CODE = `print("${COMMAND[1]}")`;

/** A call that will be made. */
export interface PlannedCall {
  readonly name: string;
  /** Its arguments as JSON. */
  readonly tokens: readonly string[];
}

/**
 * The function of a tool; tools of other types are never called. Arguments are an
 * object, whatever type the schema states.
 */
export function schemaOfTool(
  { function: tool }: Tool,
  index: number,
): NamedSchema[] {
  if (tool === undefined) return [];
  return [{
    param: `tools[${index}].function.parameters`,
    name: tool.name,
    isStrict: tool.strict === true && tool.parameters !== undefined,
    schema: { ...tool.parameters, type: "object" },
  }];
}

/** The calls that fit into `room`. */
export function planCalls(
  request: ChatRequest,
  question: string,
  { random, room }: { random: Random; room: number },
): PlannedCall[] {
  const calls: PlannedCall[] = [];
  let left = room;
  const callsMax = request.parallel_tool_calls === false ? 1 : CALLS_MAX;
  for (const tool of wantedTools(request, question)) {
    if (calls.length === callsMax) break;
    const tokens = tokenize(
      JSON.stringify(argumentsOf(tool, question, random)),
    );
    if (tokens.length + 1 > left) continue;
    left -= tokens.length + 1;
    calls.push({ name: tool.name, tokens });
  }
  return calls;
}

/** Each tool may take all that the prompt gives. */
function argumentsOf(
  tool: NamedSchema,
  question: string,
  random: Random,
): unknown {
  const promptValues = new PromptValues(question);
  const fixed = (name: string, form: "list" | "text") => {
    if (CODE_FIELD.test(name) && form === "text") return CODE;
    if (!SHELL.test(tool.name) || !COMMAND_FIELD.test(name)) return undefined;
    return form === "list" ? [...COMMAND] : `${COMMAND[0]} "${COMMAND[1]}"`;
  };
  return valueFor(tool, random, { promptValues, fixed, isSparse: true });
}

function wantedTools(request: ChatRequest, question: string): NamedSchema[] {
  const { tool_choice: choice } = request;
  const tools = request.tools.flatMap(schemaOfTool);
  if (choice === "none") return [];
  if (typeof choice === "object") {
    return tools.filter(({ name }) => name === choice.function?.name);
  }
  const words = wordsOf(question.slice(0, LOOK_CHARS));
  const matches = tools.filter(({ name }) =>
    !words.isDisjointFrom(wordsOf(name)) ||
    SHELL.test(name) && SHELL_WORDS.some((word) => words.has(word))
  );
  if (choice === "required") {
    return matches.length > 0 ? matches : tools.slice(0, 1);
  }
  return lastTurn(request)?.role === "user" ? matches : [];
}

/** The longer words: `getWeather_now` has `weather`. */
function wordsOf(text: string): Set<string> {
  const spaced = text.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return new Set(spaced.match(LONG_WORD));
}

/** The calls were planned so that they fit into the token limit. */
export function* runCalls(calls: readonly PlannedCall[]): Generator<Step> {
  for (const [index, { name, tokens }] of calls.entries()) {
    const head = { id: `call_${newRequestId()}`, type: "function" } as const;
    const call = { index, ...head, function: { name, arguments: "" } };
    yield { delta: { tool_calls: [call] } };
    for (const [at, token] of tokens.entries()) {
      const call = { index, function: { arguments: token } };
      const isLast = index === calls.length - 1 && at === tokens.length - 1;
      const finish = isLast ? { finish: "tool_calls" } as const : {};
      yield { delta: { tool_calls: [call] }, ...finish };
    }
  }
}
