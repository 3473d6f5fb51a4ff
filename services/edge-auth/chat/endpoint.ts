import type { ChatRequest } from "@gateway/shared/openai/chat";
import { EVENT_STREAM_HEADERS, JSON_HEADERS } from "../http/responses.ts";
import { estimateTokens } from "../limits/cost.ts";
import type { Endpoint } from "../requests/run_request.ts";
import { StreamAnswer, WholeAnswer } from "./answer.ts";
import { parseChatRequest } from "./request.ts";

/** `POST /v1/chat/completions`. */
export const CHAT_ENDPOINT: Endpoint<ChatRequest> = {
  kind: "chat",
  parse: parseChatRequest,
  estimate(request, catalog) {
    const { output_tokens: tokensMax } = catalog.get(request.model) ?? {};
    return estimateTokens(request, tokensMax);
  },
  answer({ stream }, options) {
    const own = stream ? EVENT_STREAM_HEADERS : JSON_HEADERS;
    const headers = { ...own, ...options.headers };
    return stream
      ? new StreamAnswer({ ...options, headers })
      : new WholeAnswer({ ...options, headers });
  },
};
