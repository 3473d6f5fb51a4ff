/** The form in which a kept answer is sent, by the facts of its record. */
import { ApiError } from "@gateway/shared/openai/error";
import {
  FORWARD_NAMES,
  forwardEndpoint,
} from "@gateway/shared/forward/endpoints";
import { publicRequestId } from "@gateway/shared/process/ids";
import { bodyAnswer, EventAnswer } from "../chat/answer.ts";
import { ForwardAnswer } from "../forward/answer.ts";
import type { HeaderFields } from "../http/exchange.ts";
import type { Answer, AnswerOptions } from "../requests/answer.ts";
import type { KeptFacts, KeptRecord } from "./records.ts";

/** Says which answer a response is, and how long it is kept. */
export function keptHeaders(requestId: string, keepMs: number): HeaderFields {
  return {
    "x-gateway-answer": publicRequestId(requestId),
    "x-gateway-keep": String(Math.round(keepMs / MS_PER_SECOND)),
  };
}

const CHAT_PATH = "/v1/chat/completions";
const MS_PER_SECOND = 1_000;

/** The endpoint of a path whose answers are kept. Throws for any other path. */
export function endpointOf(path: string): KeptFacts["endpoint"] {
  if (path === CHAT_PATH) return "chat";
  const name = FORWARD_NAMES.find((each) =>
    forwardEndpoint(each).path === path
  );
  if (name !== undefined) return name;
  throw new ApiError("keep_unavailable", `Answers of ${path} are not kept.`);
}

/** What sends a kept answer to a client. */
export function answerOf(
  { requestId, facts }: KeptRecord,
  options: AnswerOptions,
): Answer {
  const { endpoint, stream, model, createdAtMs } = facts;
  if (endpoint === "chat") {
    return stream ? new EventAnswer(options) : bodyAnswer(options);
  }
  return new ForwardAnswer(options, {
    endpoint,
    stream,
    model,
    requestId: publicRequestId(requestId),
    created: Math.floor(createdAtMs / MS_PER_SECOND),
  });
}
