/** A simulator for tests, with shorthands for requests. */
import {
  type ChatCompletion,
  chatCompletionSchema,
} from "@gateway/shared/openai/completion";
import { Buffer } from "node:buffer";
import { callApi, postChat } from "../../tests/support/chat_request.ts";
import type { SeenRequest } from "./serving/answer.ts";
import { serveSimulator, type SimulatorOptions } from "./simulator.ts";

/** The fields of a request. */
export type Body = Record<string, unknown>;

/** A simulator, and shorthands for requests to it. */
export interface TestSimulator extends AsyncDisposable {
  /** The base URL of its API. */
  readonly url: string;
  /** Every request for generated content. */
  readonly requests: SeenRequest[];
  /** Posts a chat request; a `prompt` becomes its only message. */
  chat(body: Body): Promise<Response>;
  /** A whole answer, checked against the schema that the gateway promises. */
  ask(body?: Body): Promise<ChatCompletion>;
  /** Posts JSON, or a form if a field is a file. */
  post(
    path: string,
    fields: object,
    init?: Omit<RequestInit, "body">,
  ): Promise<Response>;
  /** The text of the first choice of a whole answer. */
  text(body?: Body): Promise<string>;
  /** The data lines of a stream. */
  stream(body?: Body): Promise<string[]>;
}

/** Starts a simulator on a free port. */
export function startTestSimulator(
  options: SimulatorOptions = {},
): TestSimulator {
  const requests: SeenRequest[] = [];
  const simulator = serveSimulator({
    ...options,
    onRequest: (request) => requests.push(request),
  });
  const { url } = simulator;
  const chat = ({ prompt = "ping", ...body }: Body) =>
    postChat(url, "none", {
      body: { messages: [{ role: "user", content: prompt }], ...body },
    });
  const ask = async (body: Body = {}) =>
    chatCompletionSchema.parse(await (await chat(body)).json());
  return {
    url,
    requests,
    chat,
    ask,
    post: (path, fields, init = {}) => {
      const isForm = Object.values(fields).some((each) => each instanceof File);
      const body = isForm ? formOf(fields) : fields;
      return callApi(`${url}${path}`, "none", { body, ...init });
    },
    text: async (body) =>
      (await ask(body)).choices[0]?.message.content ?? "none",
    stream: async (body) => {
      const response = await chat({ ...body, stream: true });
      return (await response.text()).split("\n\n")
        .filter((line) => line !== "").map((line) => line.slice(6));
    },
    [Symbol.asyncDispose]: () => simulator[Symbol.asyncDispose](),
  };
}

function formOf(fields: object): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    form.set(name, value instanceof File ? value : String(value));
  }
  return form;
}

/** A recording of about 2.5 seconds: 25 characters are spoken in 70 ms each. */
export async function recording({ post }: TestSimulator): Promise<File> {
  const response = await post("/audio/speech", {
    model: "simulated-speech-1",
    voice: "alloy",
    response_format: "wav",
    input: "x".repeat(25),
    speed: 0.7,
  });
  return new File([await response.blob()], "memo.wav");
}

/** What arrives before the connection is closed, and whether it is cut. */
export async function bytesOf(response: Response) {
  const chunks: Uint8Array[] = [];
  let isCut = false;
  try {
    for await (const chunk of response.body ?? []) chunks.push(chunk);
  } catch {
    isCut = true;
  }
  return { bytes: Buffer.concat(chunks), isCut };
}
