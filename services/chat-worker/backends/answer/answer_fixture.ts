/**
 * Answers to requests for tests of the worker, and readers of what is passed on of
 * them.
 */
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { WorkerMemory } from "@gateway/shared/worker/jobs/memory";
import {
  noProgress,
  recordContext,
  type RecordedContext,
} from "../../../../tests/support/model_servers/recorded_context.ts";
import { requestWith } from "../../requests/request_fixture.ts";
import { ChatAnswer } from "./answer.ts";

/** An answer to {@link requestWith}, and the call that records its lines. */
export function newAnswer(
  change: Partial<ChatRequest> = {},
  context = recordContext(),
) {
  const progress = noProgress();
  const request = requestWith(change);
  const heldBytes = new WorkerMemory().openJob().openAnswer();
  return {
    context,
    answer: new ChatAnswer({ request, context, progress, heldBytes }),
  };
}

/** The lines that were passed on, parsed. */
export const linesOf = (context: RecordedContext) =>
  context.answer().toString().split("\n").slice(0, -1)
    .map((line) => JSON.parse(line));

/**
 * The content of the chunks, one entry each, without the role chunks: `"text"` for
 * text of the first choice and `"1:text"` for text of the second, `"[stop]"` for a
 * finish reason, `"3+2"` for usage, and for anything else the delta with its log
 * probabilities.
 */
export function contentOf(context: RecordedContext): unknown[] {
  return linesOf(context).flatMap(({ choices: [choice], usage }): unknown[] => {
    if (choice === undefined) {
      return [`${usage.prompt_tokens}+${usage.completion_tokens}`];
    }
    const { index, delta, logprobs, finish_reason } = choice;
    const where = index === 0 ? "" : `${index}:`;
    if (finish_reason !== null) return [`${where}[${finish_reason}]`];
    if (delta.role !== undefined) return [];
    const isText = Object.keys(delta).join() === "content" && !logprobs;
    if (isText) return [where + delta.content];
    return [logprobs === null ? delta : { ...delta, logprobs }];
  });
}
