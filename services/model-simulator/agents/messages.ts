/**
 * `POST /v1/messages` and `/v1/messages/count_tokens`: the answers, whole or as events.
 */
import { errorEvent } from "@gateway/shared/forward/envelope";
import { promptTokens } from "@gateway/shared/openai/tokens";
import { wallNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import { choiceOf } from "../chat/choice.ts";
import { measured, type MeasuredPrompt } from "../chat/prompt.ts";
import { lastQuestion } from "../chat/request.ts";
import {
  eventAnswer,
  eventText,
  type Planned,
  wholeAnswer,
} from "../serving/answer.ts";
import {
  type Controls,
  readControls,
  requestedError,
} from "../serving/controls.ts";
import { checkModel, type Received } from "../serving/fields.ts";
import type { PromptCache } from "../serving/prompt_cache.ts";
import { type Block, type BlockEvent, Blocks } from "./blocks.ts";
import {
  type MessagesRequest,
  parseCounted,
  parseMessages,
} from "./messages_request.ts";

/** Plans the answer. Throws an `ApiError` for a wrong request. */
export function messages({ text }: Received, cache: PromptCache): Planned {
  const request = parseMessages(text);
  const { chat } = request;
  checkModel(chat.model, "chat");
  const controls = readControls(lastQuestion(chat));
  const prompt = measured(chat, cache);
  const answer = new MessageAnswer(request, controls, prompt);
  if (!chat.stream) {
    return wholeAnswer(controls, {
      pieces: answer.blocks.run(),
      end: () => JSON.stringify(answer.whole()),
    });
  }
  const failure = errorEvent("messages", requestedError(500), {
    requestId: newRequestId(),
    model: chat.model,
    created: Math.floor(wallNow() / 1_000),
  });
  return eventAnswer(controls, answer.events(), {
    end: () => answer.lastEvents(),
    failure,
  });
}

/** Plans the count of a prompt's tokens. Throws an `ApiError` for a wrong request. */
export function countTokens({ text }: Received): Planned {
  const chat = parseCounted(text);
  checkModel(chat.model, "chat");
  const controls = readControls(lastQuestion(chat));
  return wholeAnswer(controls, {
    pieces: [chat],
    end: () => JSON.stringify({ input_tokens: promptTokens(chat) }),
  });
}

/** Why an answer ends, in Anthropic's words. */
const STOP_REASONS = {
  stop: "end_turn",
  length: "max_tokens",
  tool_calls: "tool_use",
  content_filter: "refusal",
} as const;

/** One message of the assistant. */
class MessageAnswer {
  readonly blocks: Blocks;
  readonly #request: MessagesRequest;
  readonly #prompt: MeasuredPrompt;
  readonly #hasUsage: boolean;
  readonly #id = `msg_${newRequestId()}`;

  constructor(
    request: MessagesRequest,
    controls: Controls,
    prompt: MeasuredPrompt,
  ) {
    this.#request = request;
    this.#prompt = prompt;
    this.#hasUsage = controls.isUsageMissing !== true;
    const choice = { index: 0, otherSeed: Math.random() };
    this.blocks = new Blocks(choiceOf(request.chat, controls, choice));
  }

  *events(): Generator<string> {
    let head = this.#start();
    for (const round of this.blocks.run()) {
      yield head + round.map(encoded).join("");
      head = "";
    }
  }

  lastEvents(): string {
    return eventText("message_delta", {
      delta: this.#ending(),
      usage: this.#hasUsage ? this.#usage() : undefined,
    }) + eventText("message_stop", {});
  }

  whole(): object {
    return this.#message({
      content: this.blocks.all.map(wholeBlock),
      ...this.#ending(),
    });
  }

  #start(): string {
    const nothing = { content: [], stop_reason: null, stop_sequence: null };
    const message = this.#message(nothing);
    return eventText("message_start", { message }) + eventText("ping", {});
  }

  #message(members: object): object {
    return {
      id: this.#id,
      type: "message",
      role: "assistant",
      model: this.#request.chat.model,
      ...members,
      // Undefined members are left out.
      usage: this.#hasUsage ? this.#usage() : undefined,
    };
  }

  #ending(): object {
    const { finish = "stop", stoppedBy } = this.blocks.last ?? {};
    return stoppedBy === undefined
      ? { stop_reason: STOP_REASONS[finish], stop_sequence: null }
      : { stop_reason: "stop_sequence", stop_sequence: stoppedBy };
  }

  /** What was read from the cache or written to it is no part of the input. */
  #usage(): object {
    const { tokens, cached } = this.#prompt;
    const isCaching = this.#request.isCaching;
    const { readTokens, writtenTokens } = isCaching
      ? cached
      : { readTokens: 0, writtenTokens: 0 };
    return {
      input_tokens: tokens - readTokens - writtenTokens,
      cache_creation_input_tokens: writtenTokens,
      cache_read_input_tokens: readTokens,
      cache_creation: {
        ephemeral_5m_input_tokens: writtenTokens,
        ephemeral_1h_input_tokens: 0,
      },
      output_tokens: this.blocks.tokens,
      service_tier: "standard",
    };
  }
}

/** What proves to Anthropic that a thought is its own. */
const SIGNATURE = "c2ltdWxhdGVk";

function encoded({ what, block, piece }: BlockEvent): string {
  const { index } = block;
  switch (what) {
    case "begin":
      return eventText("content_block_start", {
        index,
        content_block: emptyBlock(block),
      });
    case "piece":
      return deltaOf(index, DELTAS[block.kind](piece));
    case "end": {
      const signature = { type: "signature_delta", signature: SIGNATURE };
      const signed = block.kind === "thinking" ? deltaOf(index, signature) : "";
      return signed + eventText("content_block_stop", { index });
    }
  }
}

const deltaOf = (index: number, delta: object): string =>
  eventText("content_block_delta", { index, delta });

const DELTAS = {
  thinking: (thinking: string) => ({ type: "thinking_delta", thinking }),
  text: (text: string) => ({ type: "text_delta", text }),
  call: (partial_json: string) => ({ type: "input_json_delta", partial_json }),
};

function emptyBlock({ kind, id, name }: Block): object {
  if (kind === "text") return { type: "text", text: "" };
  if (kind === "thinking") {
    return { type: "thinking", thinking: "", signature: "" };
  }
  return { type: "tool_use", id: `toolu_${id}`, name, input: {} };
}

function wholeBlock(block: Block): object {
  const { kind, text } = block;
  const empty = emptyBlock(block);
  if (kind === "text") return { ...empty, text };
  if (kind === "call") return { ...empty, input: JSON.parse(text) };
  return { ...empty, thinking: text, signature: SIGNATURE };
}
