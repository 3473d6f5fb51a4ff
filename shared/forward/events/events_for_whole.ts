/**
 * Reads a body of events with which a server answers a request for a whole answer. Only
 * the last event of a response holds that answer; to put one together from the pieces
 * of other dialects would mean to translate them.
 */
import { Buffer } from "node:buffer";
import type { Usage } from "../../openai/completion.ts";
import type { ForwardName } from "../endpoints.ts";
import { BLANK_LINE, LINE_END } from "./event_ends.ts";
import { EventTap, type FailureEvent } from "./event_tap.ts";
import { membersOf } from "../members.ts";

/** Ends the last event, even if the server did not. */
const END_OF_EVENT = "\n\n";
const ENDING = /response\.(completed|incomplete)/;
const ITEM = /response\.output_item\.done/;
const NOTHING = /^\[\s*\]$|^null$/;

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

/**
 * The response in the event that ends a stream of them. If that has no items, those
 * that came before it are put in.
 */
function responseIn(body: Buffer): Buffer | null {
  const events = body.toString("latin1").split(BLANK_LINE);
  const last = events.findLast((event) => ENDING.test(event)) ?? "";
  const response = memberIn(dataOf(last), "response");
  if (response?.startsWith("{") !== true) return null;
  const items = events.filter((event) => ITEM.test(event))
    .map((event) => memberIn(dataOf(event), "item"))
    .filter((item) => item !== null);
  return Buffer.from(withItems(response, items), "latin1");
}

/** The data of an event. */
const dataOf = (event: string): string =>
  event.split(LINE_END)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice("data:".length))
    .join("\n");

/** The text of a member of JSON, or null. */
function memberIn(json: string, name: string): string | null {
  const member = membersOf(json)?.find((each) => each.name === name);
  return member === undefined ? null : json.slice(member.from, member.to);
}

/** A response with these items, unless it has items of its own. */
function withItems(response: string, items: readonly string[]): string {
  if (items.length === 0) return response;
  const list = `[${items.join(",")}]`;
  const output = membersOf(response)?.find(({ name }) => name === "output");
  if (output === undefined) return `{"output":${list},${response.slice(1)}`;
  const { from, to } = output;
  return NOTHING.test(response.slice(from, to))
    ? response.slice(0, from) + list + response.slice(to)
    : response;
}
