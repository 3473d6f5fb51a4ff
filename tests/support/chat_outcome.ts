/** What a client saw of a chat request, put together again. */
import assert from "node:assert/strict";
import { chat, type MiniEdge } from "./mini_cluster.ts";
import type { ScriptedModelServer } from "./scripted_model_server.ts";
import { waitFor } from "./wait_for.ts";

/** The end of a request as its client sees it. */
export interface ChatOutcome {
  /** `broken`: the connection ended without an error event, or the client left. */
  kind: "complete" | "http_error" | "sse_error" | "broken";
  status: number | null;
  /** Of all choices, with `|` between them. */
  content: string;
  /** `error.code` of a body or of an error event. */
  errorCode: string | null;
  retryAfter: string | null;
}

/** Reads an answer to its end. Fails when it breaks the form of an answer. */
export async function outcomeOf(
  answered: Promise<Response>,
): Promise<ChatOutcome> {
  const outcome: ChatOutcome = {
    kind: "broken",
    status: null,
    content: "",
    errorCode: null,
    retryAfter: null,
  };
  let response: Response;
  try {
    response = await answered;
  } catch {
    return outcome; // It left, or was cut off before any answer.
  }
  outcome.status = response.status;
  outcome.retryAfter = response.headers.get("retry-after");
  const type = response.headers.get("content-type") ?? "";
  const { text, isWhole } = await readText(response);
  if (type.startsWith("text/event-stream")) readEvents(text, isWhole, outcome);
  else if (isWhole) readBody(text, outcome);
  return outcome;
}

/** Sends a chat request and reads its answer to the end. */
export function ask(
  edge: MiniEdge,
  body: object,
  init: { signal?: AbortSignal } = {},
): Promise<ChatOutcome> {
  return outcomeOf(chat(edge, body, init));
}

/** Waits for the end of a request, and fails when it is another one in what is given. */
export async function endsAs(
  outcome: Promise<ChatOutcome>,
  expected: Partial<ChatOutcome>,
) {
  assert.partialDeepStrictEqual(await outcome, expected);
}

/** Sends a chat request, by default for a stream, and waits until it is at the model server. `answered` resolves with the first byte. */
export async function begin(
  edge: MiniEdge,
  backend: ScriptedModelServer,
  body: object = { stream: true },
) {
  const number = backend.calls.length;
  const answered = chat(edge, body);
  const outcome = outcomeOf(answered);
  const call = await waitFor(() => backend.calls[number], { what: "the call" });
  return { answered, outcome, call };
}

async function readText(response: Response) {
  const decoder = new TextDecoder();
  let text = "";
  try {
    for await (const bytes of response.body ?? []) {
      text += decoder.decode(bytes, { stream: true });
    }
    return { text, isWhole: true };
  } catch {
    return { text, isWhole: false }; // The connection ended first.
  }
}

function readEvents(
  text: string,
  isWhole: boolean,
  outcome: ChatOutcome,
): void {
  const contents: string[] = [];
  const events = text.split("\n\n");
  events.pop(); // Nothing, or an event that was cut.
  for (const event of events) {
    if (event.startsWith(":")) continue;
    assert.ok(event.startsWith("data: "), event);
    assert.equal(outcome.kind, "broken", "nothing follows the last event");
    const data = event.slice("data: ".length);
    if (data === "[DONE]") {
      outcome.kind = "complete";
      continue;
    }
    const chunk = JSON.parse(data);
    if (chunk.error !== undefined) {
      outcome.kind = "sse_error";
      outcome.errorCode = chunk.error.code;
      continue;
    }
    for (const { index, delta } of chunk.choices) {
      contents[index] = (contents[index] ?? "") + (delta.content ?? "");
    }
    outcome.content = contents.join("|");
  }
  if (isWhole) assert.notEqual(outcome.kind, "broken", "an end without a word");
}

function readBody(text: string, outcome: ChatOutcome): void {
  const body = JSON.parse(text);
  outcome.kind = outcome.status === 200 ? "complete" : "http_error";
  outcome.errorCode = body.error?.code ?? null;
  const choices: { message: { content: string | null } }[] = body.choices ?? [];
  outcome.content = choices.map(({ message }) => message.content ?? "")
    .join("|");
}
