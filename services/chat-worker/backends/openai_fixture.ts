/** A scripted model server, the backend that asks it, and what it may answer. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { monotonicNow } from "@gateway/shared/process/clock";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import { type DialectName, DIALECTS } from "@gateway/shared/models/dialects";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { chatCompletionSchema } from "@gateway/shared/openai/completion";
import {
  backendAt,
  type Reply,
  startScriptedServer,
  type Step,
} from "../../../tests/support/model_servers/scripted_server.ts";
import {
  choiceChunk,
  chunk,
  event,
  head,
  PAUSE,
  streamHead,
  usageChunk,
} from "../../../tests/support/model_servers/model_answers.ts";
import { recordContext } from "../../../tests/support/model_servers/recorded_context.ts";
import { requestWith } from "../requests/request_fixture.ts";
import { contentOf, linesOf, newAnswer } from "./answer/answer_fixture.ts";
import {
  UpstreamError,
  type UpstreamFault,
} from "@gateway/shared/upstream/http/errors";
import { OpenAiBackend } from "./openai.ts";

/** The key that the worker sends, and that nobody may see. */
export const API_KEY = "upstream-key-0123456789";
/** A secret in a header of the models file. */
export const HEADER_SECRET = "header-secret-0123456789";
/** Bytes of a mebibyte. */
export const MIB = 1024 * 1024;

/** A scripted model server, and the backend that asks it. */
export function rig(
  reply: Reply,
  { dialect = "dashscope", deadlines }: {
    dialect?: DialectName;
    deadlines?: Partial<BackendConfig["deadlines"]>;
  } = {},
) {
  const server = startScriptedServer({ reply });
  const headers = { "x-team": HEADER_SECRET };
  const change = { headers, dialect: DIALECTS[dialect], deadlines };
  const backend = new OpenAiBackend({
    config: backendAt(server.baseUrl, change),
    publicModel: "ours",
    apiKey: API_KEY,
    now: monotonicNow,
  });
  return {
    server,
    backend,
    async [Symbol.asyncDispose]() {
      backend.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** A request without usage in its stream, unless it is asked for. */
export function chat(
  members: Partial<ChatRequest> & Pick<ChatRequest, "stream">,
): ChatRequest {
  return requestWith({ include_usage: false, ...members });
}

/** Returns what was {@link contentOf} of a stream, or the contents of a whole answer. */
export async function complete(
  backend: OpenAiBackend,
  request: ChatRequest,
  context = recordContext(),
) {
  const { answer } = newAnswer(request, context);
  let error: unknown = null;
  try {
    answer.end(await backend.complete(answer));
  } catch (thrown) {
    error = thrown;
  }
  const whole = () =>
    linesOf(context).map((line) => chatCompletionSchema.parse(line))
      .flatMap(({ choices }) => choices.map(({ message }) => message.content));
  return {
    output: request.stream ? contentOf(context) : whole(),
    error,
    context,
  };
}

/** The text among what was {@link output}. */
export function textOf(output: readonly unknown[]): string {
  return output.filter((each) =>
    typeof each === "string" && !each.includes("[")
  )
    .join("");
}

/** Asserts that an error has this fault, and returns it. */
export function assertFault(
  error: unknown,
  fault: UpstreamFault,
): UpstreamError {
  assert.ok(error instanceof UpstreamError, String(error));
  assert.equal(error.fault, fault);
  return error;
}

/** The words of the usual answer. */
export const words = ["Hel", "lo ", "wörld 😀"];
/** What is {@link contentOf} of the usual answer. */
export const spoken = [...words, "[stop]"];
/** The chunks of the usual answer. */
export const payloads = [
  choiceChunk({ role: "assistant", content: "" }),
  ...words.map((content) => choiceChunk({ content })),
  choiceChunk({}, "stop"),
  usageChunk(1, 3),
];

/** The usual answer as events. */
export const body = payloads.map(event).join("") + event("[DONE]");

/** All that these steps send, in one packet. */
export function onePacket(steps: readonly Step[]): Step {
  const sends = steps.map((step) =>
    "send" in step ? Buffer.from(step.send) : Buffer.of()
  );
  return { send: Buffer.concat(sends) };
}

/** A chunk with the first words. */
export const hello = choiceChunk({ content: "Hello" });
/** The first words, in a packet of their own. */
export const firstSteps: Step[] = [streamHead(), chunk(event(hello)), PAUSE];
/** A response with this status whose body never ends. */
export const half = (status: string) =>
  head(`${status}\r\ncontent-type: text/json\r\ncontent-length: 50`, "{");
