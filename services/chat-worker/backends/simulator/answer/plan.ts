import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Controls } from "../control_phrases.ts";
import { CORPUS_THINKING_ID } from "../corpus/corpus.ts";
import { LANGUAGES } from "../corpus/topic.ts";
import type { Language } from "../language/language.ts";
import type { Bias } from "../language/ngram_model.ts";
import { type Conversation, textOf } from "./conversation.ts";
import { planLength } from "./ending.ts";
import { createHints, type MessageFacts, readFacts } from "./hints.ts";
import type { Script, Segment } from "./script.ts";
import { writeArguments, writeStructured } from "./structured.ts";
import { planCalls, type PlannedCall } from "./tool_choice.ts";
import { describeResults } from "./tool_result.ts";
import { writeProse, type WriterOptions } from "./writer.ts";

/** Tokens of reasoning about a usual question. */
const THINKING_TOKENS = 40;
/** Words of the question that reasoning begins with. */
const QUOTED_WORDS_MAX = 12;
/** Tokens of what follows a result of a tool or a word about a picture. */
const REMARK_TOKENS = 25;

/** What the choices of one answer have in common. */
export interface AnswerPlan {
  request: ChatRequest;
  conversation: Conversation;
  controls: Controls;
  language: Language;
  /** What the request is about. */
  bias: Bias;
  facts: MessageFacts;
  calls: readonly PlannedCall[];
}

/** Understands a request: its subject, and whether tools are called. */
export function planAnswer(
  request: ChatRequest,
  conversation: Conversation,
  controls: Controls,
  language: Language,
): AnswerPlan {
  const facts = readFacts(conversation.userTexts[0] ?? "");
  return {
    request,
    conversation,
    controls,
    language,
    bias: language.topics.choose(conversation.userTexts),
    facts,
    calls: planCalls(request, conversation, facts),
  };
}

/**
 * Writes the script of one choice. `callId` makes the id of the choice's call at
 * a place. Throws the `ApiError` of a response format that cannot be met.
 */
export function writeScript(
  plan: AnswerPlan,
  writer: WriterOptions,
  callId: (at: number) => string,
): Script {
  const thinking = plan.request.enable_thinking === true
    ? thinkingSegments(plan)
    : [];
  if (plan.calls.length > 0) {
    const calls = plan.calls.map((call, index): Segment => ({
      type: "call",
      index,
      id: callId(index),
      name: call.tool.function.name,
      tokens: encode(plan, writeArguments(call, sourceOf(plan, writer, call))),
    }));
    return { segments: [...thinking, ...calls], reason: "tool_calls" };
  }
  return {
    segments: [...thinking, ...contentSegments(plan, writer)],
    reason: "stop",
  };
}

function contentSegments(plan: AnswerPlan, writer: WriterOptions): Segment[] {
  const { request, controls, conversation } = plan;
  const format = request.response_format;
  if (format !== undefined && format.type !== "text") {
    const messages = request.messages.map(textOf).join("\n");
    const text = writeStructured(format, messages, sourceOf(plan, writer));
    return [fixed(plan, "content", text)];
  }
  const exact = controls.exactTokens;
  if (exact !== undefined) {
    return [sampled(plan.bias, { type: "exactly", tokens: exact })];
  }
  const opening = openingOf(plan);
  if (opening === "") {
    const length = planLength(conversation.userTexts[0] ?? "");
    return [sampled(plan.bias, length)];
  }
  const length = { type: "about", tokens: REMARK_TOKENS } as const;
  return [
    fixed(plan, "content", `${opening}\n\n`),
    sampled(plan.bias, length),
  ];
}

/** What the answer must say before anything else: what tools found, what pictures came. */
function openingOf(plan: AnswerPlan): string {
  const { toolResults, images, endsWithUser } = plan.conversation;
  if (toolResults.length > 0) return describeResults(toolResults);
  if (images === 0 || !endsWithUser) return "";
  return images === 1
    ? "Thank you for the image. I can see that it is there, but I cannot look inside."
    : `Thank you for the ${images} images. I can see that they are there, but I cannot look inside.`;
}

function thinkingSegments(plan: AnswerPlan): Segment[] {
  const { topics } = plan.language;
  const words = plan.facts.text.split(/\s+/).slice(0, QUOTED_WORDS_MAX);
  const question = words.join(" ");
  const bias: Bias = {
    allowedTopics: topics.languageTopics[LANGUAGES.indexOf("inner")] ?? 0,
    activeTopics: topics.bitOf(CORPUS_THINKING_ID),
    boostedTokens: [],
    openingTokens: [],
  };
  const thoughts: Segment = {
    type: "sampled",
    channel: "reasoning",
    bias,
    length: { type: "about", tokens: THINKING_TOKENS },
    isNewText: false,
  };
  if (question === "") return [thoughts];
  return [fixed(plan, "reasoning", `The user says: "${question}".`), thoughts];
}

function sourceOf(plan: AnswerPlan, writer: WriterOptions, call?: PlannedCall) {
  const names = call?.name === undefined ? undefined : [call.name];
  return {
    random: writer.random,
    hints: createHints(plan.facts, names),
    writeProse: (tokensMax: number) => writeProse(writer, plan.bias, tokensMax),
  };
}

function fixed(
  plan: AnswerPlan,
  channel: "reasoning" | "content",
  text: string,
): Segment {
  return { type: "fixed", channel, tokens: encode(plan, text) };
}

function sampled(
  bias: Bias,
  length: (Segment & { type: "sampled" })["length"],
): Segment {
  return {
    type: "sampled",
    channel: "content",
    bias,
    length,
    isNewText: true,
  };
}

function encode(plan: AnswerPlan, text: string): number[] {
  return plan.language.tokenizer.encode(text);
}
