/**
 * `POST /v1/chat/completions`: its choices in parallel, at their pace, as chunks or
 * whole.
 */
import type { ChunkDelta } from "@gateway/shared/openai/completion";
import { fieldError } from "@gateway/shared/openai/error";
import { promptTokens } from "@gateway/shared/openai/tokens";
import { wallNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import { eventAnswer, type Planned, wholeAnswer } from "../serving/answer.ts";
import { readControls } from "../serving/controls.ts";
import { checkModel, type Received } from "../serving/fields.ts";
import { checkSchemas, choiceOf, type Step } from "./choice.ts";
import { lastAsked, parseRequest } from "./request.ts";

const CONTEXT_TOKENS = 200_000;

/** Plans the answer. Throws an `ApiError` for a wrong request. */
export function chatCompletion({ text }: Received): Planned {
  const request = parseRequest(text);
  checkModel(request.model, "chat");
  // Only phrases in the last user message count.
  const controls = readControls(lastAsked(request));
  const { stream, include_usage: hasUsage } = request;
  const { isUsageMissing = false } = controls;
  const promptCount = promptTokens(request);
  if (promptCount > CONTEXT_TOKENS) {
    const message =
      `This model's maximum context length is ${CONTEXT_TOKENS} tokens. ` +
      `However, your messages have ${promptCount} tokens.`;
    throw fieldError("context_length_exceeded", "messages", message);
  }
  checkSchemas(request);
  const choices = Array.from({ length: request.n }, (_, index) => {
    const otherSeed = Math.random();
    return choiceOf(request, controls, { index, otherSeed });
  });
  const said = choices.map((): Step[] => []);
  const head = {
    id: `chatcmpl-${newRequestId()}`,
    created: Math.floor(wallNow() / 1_000),
    model: request.model,
  };
  const json = (kind: string, members: object) =>
    JSON.stringify({
      ...head,
      object: kind,
      system_fingerprint: "simulator-2",
      // Undefined members are left out.
      ...members,
    });
  const event = (members: object) =>
    `data: ${json("chat.completion.chunk", members)}\n\n`;
  const chunk = (index: number, delta: ChunkDelta, more: object = {}) => {
    const choice = { index, delta, logprobs: null, finish_reason: null };
    const usage = hasUsage ? null : undefined;
    return event({ choices: [{ ...choice, ...more }], usage });
  };
  const chunks = (
    { delta, logprobs = [], finish }: Step,
    index: number,
    isFirst: boolean,
  ) => {
    const content = delta.tool_calls === undefined ? "" : null;
    const isEmpty = !Object.values(delta).some(Boolean) && logprobs.length < 1;
    return [
      isFirst ? chunk(index, { role: "assistant", content }) : "",
      isEmpty ? "" : chunk(index, delta, { logprobs: wireOf(logprobs) }),
      finish ? chunk(index, {}, { finish_reason: finish }) : "",
    ].join("");
  };
  /** One step of every choice that runs: the events of a stream. */
  function* rounds() {
    const running = new Map(choices.entries());
    while (running.size > 0) {
      let events = "";
      for (const [index, steps] of running) {
        const { value, done } = steps.next();
        if (done || value.finish !== undefined) running.delete(index);
        if (done) continue;
        const length = said[index]?.push(value);
        if (stream) events += chunks(value, index, length === 1);
      }
      yield events;
    }
  }
  if (!stream) {
    return wholeAnswer(controls, rounds(), () =>
      json("chat.completion", {
        choices: said.map(wholeChoice),
        usage: isUsageMissing ? undefined : usageOf(promptCount, said.flat()),
      }));
  }
  return eventAnswer(controls, rounds(), () => {
    const usage = hasUsage && !isUsageMissing
      ? event({ choices: [], usage: usageOf(promptCount, said.flat()) })
      : "";
    return `${usage}data: [DONE]\n\n`;
  });
}

function usageOf(prompt_tokens: number, steps: readonly Step[]) {
  const reasoning_tokens =
    steps.filter(({ delta }) => delta.reasoning_content).length;
  return {
    prompt_tokens,
    completion_tokens: steps.length,
    total_tokens: prompt_tokens + steps.length,
    completion_tokens_details: reasoning_tokens === 0
      ? undefined
      : { reasoning_tokens },
  };
}

function wireOf(content: readonly object[]) {
  return content.length > 0 ? { content } : null;
}

function wholeChoice(steps: readonly Step[], index: number) {
  const deltas = steps.map(({ delta }) => delta);
  const joined = (name: "content" | "reasoning_content") =>
    deltas.map((delta) => delta[name] ?? "").join("");
  const fragments = deltas.flatMap(({ tool_calls = [] }) => tool_calls);
  const calls = [...Map.groupBy(fragments, (each) => each.index).values()]
    .map(([head, ...rest]) => ({
      id: head?.id,
      type: head?.type,
      function: {
        name: head?.function.name,
        arguments: rest.map((each) => each.function.arguments).join(""),
      },
    }));
  return {
    index,
    message: {
      role: "assistant",
      content: calls.length > 0 ? null : joined("content"),
      refusal: null,
      reasoning_content: joined("reasoning_content") || undefined,
      tool_calls: calls.length > 0 ? calls : undefined,
    },
    logprobs: wireOf(steps.flatMap(({ logprobs = [] }) => logprobs)),
    finish_reason: steps.at(-1)?.finish ?? "stop",
  };
}
