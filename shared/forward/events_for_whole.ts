/**
 * Reads a body of events with which a server answers a request for a whole answer. Only
 * the last event of a response holds that answer; to put one together from the pieces of
 * other dialects would mean to translate them.
 */
import { Buffer } from "node:buffer";
import type { Usage } from "../openai/completion.ts";
import type { ForwardName } from "./endpoints.ts";
import { EventTap, type FailureEvent } from "./event_tap.ts";
import { membersOf } from "./members.ts";

/** Ends the last event, even if the server did not. */
const END_OF_EVENT = "\n\n";
const ENDING = /response\.(completed|incomplete)/;

/** What a body of events says. */
export interface EventsForWhole {
  /** The whole answer, as it stands in the last event; null if it is in none. */
  readonly answer: Buffer | null;
  /** The error with which the events end. */
  readonly failure: FailureEvent | null;
  /** Null if none is stated. */
  readonly usage: Usage | null;
  /** Tokens of the answer by its text. */
  readonly estimatedTokens: number;
}

/** Reads a whole body of events. Throws a `RangeError` if one is too long. */
export function readEventsForWhole(
  body: Buffer,
  endpoint: ForwardName,
): EventsForWhole {
  const tap = new EventTap(endpoint);
  tap.push(Buffer.concat([body, Buffer.from(END_OF_EVENT)]));
  const { failure, usage, estimatedTokens } = tap;
  const isWhole = failure === null && tap.isFinished;
  const answer = isWhole && endpoint === "responses" ? responseIn(body) : null;
  return { answer, failure, usage, estimatedTokens };
}

/** The response in the event that ends a stream of them. */
function responseIn(body: Buffer): Buffer | null {
  const events = body.toString("latin1").split(/\r?\n\r?\n/);
  const last = events.findLast((event) => ENDING.test(event)) ?? "";
  const data = last.split(/\r?\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5))
    .join("\n");
  const response = membersOf(data)?.find(({ name }) => name === "response");
  if (response === undefined) return null;
  const text = data.slice(response.from, response.to);
  return text.startsWith("{") ? Buffer.from(text, "latin1") : null;
}
