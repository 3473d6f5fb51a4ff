/** What a client saw of a chat request, put together again. */
import assert from "node:assert/strict";
import type { InProcessEdge } from "./in_process_edge.ts";
import { chat } from "./open.ts";
import type { ScriptedModelServer } from "../model_servers/scripted_model_server.ts";
import { until } from "../wait_for.ts";

/** How a chat request ended for its client. */
export interface ChatOutcome {
  /** `broken`: the connection ended without an error event, or the client left. */
  kind: "complete" | "http_error" | "sse_error" | "broken";
  status: number | null;
  /** The texts of all choices, with `|` between them. */
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
  // It left, or was cut off before any answer.
  const response = await answered.catch(() => null);
  if (response === null) return outcome;
  const { status, headers } = response;
  outcome.status = status;
  outcome.retryAfter = headers.get("retry-after");
  const decoder = new TextDecoder();
  let text = "";
  let isWhole = true;
  try {
    for await (const bytes of response.body ?? []) {
      text += decoder.decode(bytes, { stream: true });
    }
  } catch {
    isWhole = false; // The connection ended first.
  }
  if (headers.get("content-type")?.startsWith("text/event-stream")) {
    readEvents(text, outcome);
    if (isWhole) assert.notEqual(outcome.kind, "broken", "no end");
  } else if (isWhole) {
    const { error, choices = [] } = JSON.parse(text);
    outcome.kind = status === 200 ? "complete" : "http_error";
    outcome.errorCode = error?.code ?? null;
    const contents: string[] = choices.map(
      ({ message }: { message: { content: string | null } }) => message.content,
    );
    outcome.content = contents.join("|");
  }
  return outcome;
}

/** Sends a chat request to an open edge and reads the answer to its end. */
export const ask = (...request: Parameters<typeof chat>) =>
  outcomeOf(chat(...request));

/**
 * Waits for the end of a request, and fails when it is another one in what is given.
 */
export async function endsAs(
  outcome: Promise<ChatOutcome>,
  expected: Partial<ChatOutcome>,
) {
  assert.partialDeepStrictEqual(await outcome, expected);
}

/**
 * Sends a chat request, by default for a stream, and waits until it is at the model
 * server. `answered` resolves with the first byte.
 */
export async function begin(
  edge: InProcessEdge,
  backend: ScriptedModelServer,
  body: object = { stream: true },
) {
  const number = backend.calls.length;
  const answered = chat(edge, body);
  const outcome = outcomeOf(answered);
  const call = await until(() => backend.calls[number]);
  return { answered, outcome, call };
}

/** Lines of their own, also right before an event. */
const KEEP_ALIVES = /^:.*\n+/gm;

function readEvents(text: string, outcome: ChatOutcome): void {
  const contents: string[] = [];
  // Behind the last one is nothing, or an event that was cut.
  const events = text.replaceAll(KEEP_ALIVES, "").split("\n\n").slice(0, -1);
  for (const event of events) {
    assert.ok(event.startsWith("data: "), event);
    assert.equal(outcome.kind, "broken", "nothing follows the last event");
    const data = event.slice("data: ".length);
    const { error, choices } = data === "[DONE]" ? {} : JSON.parse(data);
    if (data === "[DONE]") outcome.kind = "complete";
    else if (error !== undefined) {
      outcome.kind = "sse_error";
      outcome.errorCode = error.code;
    }
    for (const { index, delta } of choices ?? []) {
      contents[index] = (contents[index] ?? "") + (delta.content ?? "");
    }
  }
  outcome.content = contents.join("|");
}
