/**
 * `POST /v1/responses` and `/v1/responses/input_tokens`: whole answers, or as events.
 */
import { errorEvent } from "@gateway/shared/forward/envelope";
import { promptTokens } from "@gateway/shared/openai/tokens";
import { wallNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import { checkSchemas, choiceOf } from "../chat/choice.ts";
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
import { parseResponses, type ResponsesRequest } from "./responses_request.ts";

/** Plans the answer. Throws an `ApiError` for a wrong request. */
export function responses({ text }: Received, cache: PromptCache): Planned {
  const request = parseResponses(text);
  const { chat } = request;
  checkModel(chat.model, "chat");
  const controls = readControls(lastQuestion(chat), "input");
  const prompt = measured(chat, cache);
  checkSchemas(chat);
  const answer = new ResponseAnswer(request, controls, prompt);
  if (!chat.stream) {
    return wholeAnswer(controls, {
      pieces: answer.blocks.run(),
      end: () => JSON.stringify(answer.whole()),
    });
  }
  const failure = errorEvent("responses", requestedError(500), {
    requestId: newRequestId(),
    model: chat.model,
    created: nowSeconds(),
  });
  return eventAnswer(controls, answer.events(), {
    end: () => answer.lastEvents(),
    failure,
  });
}

/** Plans the count of a prompt's tokens. Throws an `ApiError` for a wrong request. */
export function inputTokens({ text }: Received): Planned {
  const { chat } = parseResponses(text);
  checkModel(chat.model, "chat");
  const controls = readControls(lastQuestion(chat), "input");
  const count = () => ({
    object: "response.input_tokens",
    input_tokens: promptTokens(chat),
  });
  return wholeAnswer(controls, {
    pieces: [chat],
    end: () => JSON.stringify(count()),
  });
}

const nowSeconds = (): number => Math.floor(wallNow() / 1_000);

/** One response. */
class ResponseAnswer {
  readonly blocks: Blocks;
  readonly #request: ResponsesRequest;
  readonly #prompt: MeasuredPrompt;
  readonly #hasUsage: boolean;
  readonly #id = `resp_${newRequestId()}`;
  readonly #createdAt = nowSeconds();
  #events = 0;

  constructor(
    request: ResponsesRequest,
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
    const response = this.#response({ status: "in_progress", output: [] });
    let head = this.#event("response.created", { response }) +
      this.#event("response.in_progress", { response });
    for (const round of this.blocks.run()) {
      yield head + round.map((event) => this.#encoded(event)).join("");
      head = "";
    }
  }

  lastEvents(): string {
    const type = this.#isCut ? "response.incomplete" : "response.completed";
    return this.#event(type, { response: this.whole() });
  }

  whole(): object {
    const status = this.#isCut ? "incomplete" : "completed";
    const incomplete_details = this.#isCut
      ? { reason: "max_output_tokens" }
      : null;
    const items = this.blocks.all.map((block) => itemOf(block, status));
    return this.#response({
      status,
      incomplete_details,
      output: items,
      // Undefined members are left out.
      usage: this.#hasUsage ? this.#usage() : undefined,
    });
  }

  get #isCut(): boolean {
    return this.blocks.last?.finish === "length";
  }

  #response(members: object): object {
    return {
      id: this.#id,
      object: "response",
      created_at: this.#createdAt,
      error: null,
      incomplete_details: null,
      ...this.#request.echo,
      usage: null,
      ...members,
    };
  }

  #usage(): object {
    const { tokens: input_tokens, cached } = this.#prompt;
    const { tokens: output_tokens, thinkingTokens } = this.blocks;
    return {
      input_tokens,
      input_tokens_details: { cached_tokens: cached.readTokens },
      output_tokens,
      output_tokens_details: { reasoning_tokens: thinkingTokens },
      total_tokens: input_tokens + output_tokens,
    };
  }

  #event(type: string, members: object): string {
    const sequence_number = this.#events++;
    return eventText(type, { sequence_number, ...members });
  }

  #encoded({ what, block, piece }: BlockEvent): string {
    const { kind, index: output_index } = block;
    const at = { item_id: idOf(block), output_index, ...PLACES[kind] };
    const [delta, done, added, ended] = EVENTS[kind];
    if (what === "piece") {
      return this.#event(delta, { ...at, delta: piece, ...MORE[kind] });
    }
    const status = what === "begin" ? "in_progress" : "completed";
    const item = itemOf(block, status);
    const part = partOf(block);
    if (what === "begin") {
      return this.#event("response.output_item.added", { output_index, item }) +
        (added === "" ? "" : this.#event(added, { ...at, part }));
    }
    const whole = { ...at, ...WHOLE[kind](block), ...MORE[kind] };
    return this.#event(done, whole) +
      (ended === "" ? "" : this.#event(ended, { ...at, part })) +
      this.#event("response.output_item.done", { output_index, item });
  }
}

/** The events of a part: a piece, all of it, and where it begins and ends. */
const EVENTS: Readonly<
  Record<Block["kind"], readonly [string, string, string, string]>
> = {
  thinking: [
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
  ],
  text: [
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.added",
    "response.content_part.done",
  ],
  call: [
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "",
    "",
  ],
};
/** Where the part stands in its item. */
const PLACES = {
  thinking: { summary_index: 0 },
  text: { content_index: 0 },
  call: {},
} as const;
/** What only the events of texts have. */
const MORE = { thinking: {}, text: { logprobs: [] }, call: {} } as const;
/** The whole part, as the last of its events has it. */
const WHOLE = {
  thinking: ({ text }: Block) => ({ text }),
  text: ({ text }: Block) => ({ text }),
  call: ({ text, name }: Block) => ({ name, arguments: text }),
};
const PREFIXES = { thinking: "rs", text: "msg", call: "fc" } as const;

const idOf = ({ kind, id }: Block): string => `${PREFIXES[kind]}_${id}`;

function partOf({ kind, text }: Block): object {
  return kind === "thinking"
    ? { type: "summary_text", text }
    : { type: "output_text", text, annotations: [], logprobs: [] };
}

function itemOf(block: Block, status: string): object {
  const id = idOf(block);
  const isBegun = block.text !== "";
  switch (block.kind) {
    case "thinking":
      return {
        id,
        type: "reasoning",
        summary: isBegun ? [partOf(block)] : [],
      };
    case "text":
      return {
        id,
        type: "message",
        status,
        role: "assistant",
        content: isBegun ? [partOf(block)] : [],
      };
    case "call":
      return {
        id,
        type: "function_call",
        status,
        call_id: `call_${block.id}`,
        name: block.name,
        arguments: block.text,
      };
  }
}
