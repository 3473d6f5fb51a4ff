/** A simulator for tests, with shorthands for requests. */
import { chatCompletionSchema } from "../../tests/support/answer_schemas.ts";
import { postChat } from "../../tests/support/chat_request.ts";
import type { ChatCompletion } from "@gateway/shared/openai/completion";
import {
  type SeenRequest,
  Simulator,
  type SimulatorOptions,
} from "./simulator.ts";

export type Body = Record<string, unknown>;

export interface Asked extends AsyncDisposable {
  readonly url: string;
  /** Every completion request. */
  readonly seen: SeenRequest[];
  /** Posts a chat request; a `prompt` becomes its only message. */
  post(body: Body, init?: RequestInit): Promise<Response>;
  /** A whole answer, checked against the schema that the gateway promises. */
  ask(body?: Body): Promise<ChatCompletion>;
  /** The text of the first choice of a whole answer. */
  text(body?: Body): Promise<string>;
  /** The data lines of a stream. */
  stream(body?: Body): Promise<string[]>;
}

export function startAsked(options: SimulatorOptions = {}): Asked {
  const seen: SeenRequest[] = [];
  const simulator = new Simulator({
    ...options,
    onRequest: (request) => seen.push(request),
  });
  const post: Asked["post"] = ({ prompt = "ping", ...body }, init = {}) => {
    const messages = [{ role: "user", content: prompt }];
    return postChat(simulator.url, "none", { messages, ...body }, init);
  };
  const ask: Asked["ask"] = async (body = {}) => {
    const text = await (await post(body)).text();
    return chatCompletionSchema.parse(JSON.parse(text));
  };
  return {
    url: simulator.url,
    seen,
    post,
    ask,
    text: async (body) =>
      (await ask(body)).choices[0]?.message.content ?? "none",
    stream: async (body) => {
      const response = await post({ ...body, stream: true });
      return (await response.text()).split("\n\n")
        .filter((line) => line !== "").map((line) => line.slice(6));
    },
    [Symbol.asyncDispose]: () => simulator[Symbol.asyncDispose](),
  };
}
