import type {
  ModelConfig,
  SimulatorKnobs,
} from "@gateway/shared/models/catalog";
import type {
  ChatMessage,
  ChatRequest,
  FinishReason,
  Logprobs,
  ToolCallDelta,
  Usage,
} from "@gateway/shared/openai/chat";
import type { Backend, BackendEvent } from "../backend.ts";
import { randomFrom } from "./sampling/random.ts";
import {
  type CompletionRecord,
  createSimulator,
  type Language,
  lazyLanguage,
} from "./simulator.ts";
import type { Sleep } from "./sleep.ts";

/** Learned once for all tests of a file: learning takes longer than most of them. */
export const language: () => Language = lazyLanguage();

/** A request as validation leaves it, with the fields a test is about. */
export type RequestFields = Partial<Omit<ChatRequest, "messages">> & {
  messages?: string | ChatMessage[];
};

export function requestOf(fields: RequestFields = {}): ChatRequest {
  const { messages = "Why is the sky blue?", ...rest } = fields;
  return {
    model: "neutral-3.7-plus",
    stream: true,
    include_usage: true,
    n: 1,
    ...rest,
    messages: typeof messages === "string"
      ? [{ role: "user", content: messages }]
      : messages,
  };
}

/** Time that only passes while somebody sleeps. */
export interface FakeTime {
  now: () => number;
  sleep: Sleep;
  /** How long each sleep takes too long. */
  overshootMs: number;
  /** Called at the beginning of each sleep. */
  onSleep?: (ms: number) => void;
}

export function fakeTime(): FakeTime {
  let nowMs = 1_000_000;
  const time: FakeTime = {
    now: () => nowMs,
    overshootMs: 0,
    sleep: (ms, signal) => {
      time.onSleep?.(ms);
      if (signal?.aborted !== true && ms > 0) nowMs += ms + time.overshootMs;
      return Promise.resolve();
    },
  };
  return time;
}

export interface SimulatorFields {
  knobs?: Partial<SimulatorKnobs>;
  model?: Partial<ModelConfig>;
  time?: FakeTime;
  /** What chance begins with; the same label gives the same chance. */
  chance?: string;
  onEnd?: (record: CompletionRecord) => void;
}

export function simulatorOf(fields: SimulatorFields = {}): Backend {
  const time = fields.time ?? fakeTime();
  return createSimulator({
    model: {
      id: "neutral-3.7-plus",
      kind: "chat",
      ownedBy: "simulator",
      created: 1_767_225_600,
      vision: true,
      passFields: [],
      backends: [],
      ...fields.model,
    },
    config: {
      type: "simulator",
      name: "simulator",
      weight: 1,
      preference: 0,
      knobs: {
        firstTokenMs: 0,
        tokensPerSecond: 0,
        jitter: 0,
        errorRate: 0,
        midStreamErrorRate: 0,
        ...fields.knobs,
      },
    },
    now: time.now,
    sleep: time.sleep,
    random: randomFrom(fields.chance ?? "test"),
    language,
    ...(fields.onEnd ? { onEnd: fields.onEnd } : {}),
  });
}

export interface AnswerChoice {
  content: string;
  reasoning: string;
  calls: { id: string; name: string; text: string }[];
  finish: FinishReason | null;
  logprobs: Logprobs[];
}

export interface Answer {
  choices: AnswerChoice[];
  usage: Usage | null;
  batches: (readonly BackendEvent[])[];
}

/** The whole answer, put together as an SDK would. */
export async function ask(
  fields: RequestFields = {},
  simulator: Backend = simulatorOf(),
): Promise<Answer> {
  const answer: Answer = { choices: [], usage: null, batches: [] };
  for await (const batch of simulator.complete(requestOf(fields), callOf())) {
    answer.batches.push(batch);
    for (const event of batch) addEvent(answer, event);
  }
  return answer;
}

/** The first choice of an answer. */
export async function askOne(
  fields: RequestFields = {},
  simulator: Backend = simulatorOf(),
): Promise<AnswerChoice & { usage: Usage | null }> {
  const { choices, usage } = await ask(fields, simulator);
  return { ...(choices[0] ?? emptyChoice()), usage };
}

export function callOf(signal = new AbortController().signal) {
  return { requestId: "req-1", signal };
}

/** Tokens of a text, as the simulator counts them. */
export function countTokens(text: string): number {
  return language().tokenizer.encode(text).length;
}

function addEvent(answer: Answer, event: BackendEvent): void {
  if (event.type === "usage") {
    answer.usage = event.usage;
    return;
  }
  if (event.type === "fingerprint") return;
  const choice = answer.choices[event.index] ??= emptyChoice();
  if (event.type === "finish") {
    choice.finish = event.reason;
    return;
  }
  choice.content += event.content ?? "";
  choice.reasoning += event.reasoning ?? "";
  if (event.logprobs) choice.logprobs.push(event.logprobs);
  for (const call of event.toolCalls ?? []) addCall(choice, call);
}

function addCall(choice: AnswerChoice, delta: ToolCallDelta): void {
  const call = choice.calls[delta.index] ??= { id: "", name: "", text: "" };
  call.id += delta.id ?? "";
  call.name += delta.function.name ?? "";
  call.text += delta.function.arguments ?? "";
}

function emptyChoice(): AnswerChoice {
  return { content: "", reasoning: "", calls: [], finish: null, logprobs: [] };
}
