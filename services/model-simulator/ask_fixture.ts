/** A simulator for tests, with shorthands for requests. */
import { chatCompletionSchema } from "@gateway/shared/openai/completion";
import { postChat } from "../../tests/support/chat_request.ts";
import type { SeenRequest } from "./serving/answer.ts";
import { serveSimulator, type SimulatorOptions } from "./simulator.ts";

export type Body = Record<string, unknown>;

export function startAsked(options: SimulatorOptions = {}) {
  /** Every completion request. */
  const seen: SeenRequest[] = [];
  const simulator = serveSimulator({
    ...options,
    onRequest: (request) => seen.push(request),
  });
  /** Posts a chat request; a `prompt` becomes its only message. */
  const post = (
    { prompt = "ping", ...body }: Body,
    init: RequestInit = {},
  ): Promise<Response> => {
    const messages = [{ role: "user", content: prompt }];
    return postChat(simulator.url, "none", { messages, ...body }, init);
  };
  /** A whole answer, checked against the schema that the gateway promises. */
  const ask = async (body: Body = {}) => {
    const text = await (await post(body)).text();
    return chatCompletionSchema.parse(JSON.parse(text));
  };
  return {
    url: simulator.url,
    ...{ seen, post, ask },
    /** The text of the first choice of a whole answer. */
    text: async (body?: Body) =>
      (await ask(body)).choices[0]?.message.content ?? "none",
    /** The data lines of a stream. */
    stream: async (body?: Body) => {
      const response = await post({ ...body, stream: true });
      return (await response.text()).split("\n\n")
        .filter((line) => line !== "").map((line) => line.slice(6));
    },
    [Symbol.asyncDispose]: () => simulator[Symbol.asyncDispose](),
  };
}
