/** What the events of each dialect mean for their gateway. */
import { Buffer } from "node:buffer";
import type { Usage } from "../../openai/completion.ts";
import { isJsonObject } from "../../process/error_text.ts";
import type { ForwardName } from "../endpoints.ts";
import { LINE_END } from "./event_ends.ts";
import { addsUp, messageUsage, responseUsage } from "../usage.ts";

/** One event of a stream, as it stands among others. */
export interface EventPlace {
  /** The bytes as Latin-1, so that positions are the same in both. */
  readonly text: string;
  readonly bytes: Uint8Array;
  readonly from: number;
  readonly to: number;
}

/** What readers note of a stream. */
export interface EventNotes {
  hasBegun: boolean;
  isFinished: boolean;
  usage: Usage | null;
  /** The counts that were stated do not add up. */
  isRepaired: boolean;
  /** The counts of a dialect that states them one after the other. */
  counts: Readonly<Record<string, unknown>>;
  failure: { readonly text: string; readonly data: unknown } | null;
  countText(text: string, at: number): void;
}

/** Notes what one event says. */
export type EventReader = (notes: EventNotes, event: EventPlace) => void;

/**
 * The readers of the endpoints; those without streams have one that is never called.
 */
export const EVENT_READERS: Readonly<Record<ForwardName, EventReader>> = {
  messages: readMessagesEvent,
  responses: readResponsesEvent,
  completions: readCompletionsEvent,
  count_tokens: ignore,
  input_tokens: ignore,
  compact: ignore,
  embeddings: ignore,
  rerank: ignore,
  other: ignore,
};

function ignore(): void {}

/** Anthropic's: https://docs.claude.com/en/api/messages-streaming, November 2026. */
function readMessagesEvent(notes: EventNotes, event: EventPlace): void {
  if (isLineOf(DELTA_LINE.messages, event)) {
    return noteBlockDelta(notes, event);
  }
  switch (nameOf(event)) {
    case "":
    case "ping":
      return;
    case "content_block_delta":
      return noteBlockDelta(notes, event);
    case "message_start": {
      const data = dataOf(event);
      const message = isJsonObject(data) ? data.message : undefined;
      noteUsage(notes, isJsonObject(message) ? message.usage : undefined);
      return;
    }
    case "message_delta": {
      notes.hasBegun = true;
      const data = dataOf(event);
      noteUsage(notes, isJsonObject(data) ? data.usage : undefined);
      return;
    }
    case "message_stop": {
      notes.hasBegun = true;
      notes.isFinished = true;
      const data = dataOf(event);
      noteUsage(notes, isJsonObject(data) ? data.usage : undefined);
      return;
    }
    case DONE:
      noteDone(notes);
      return;
    case "error":
      notes.failure = { text: textOf(event), data: dataOf(event) };
      return;
    default:
      notes.hasBegun = true;
  }
}

function noteBlockDelta(
  notes: EventNotes,
  { text, from, to }: EventPlace,
): void {
  notes.hasBegun = true;
  // `"delta":{"type":"text_delta","text":"Hello"}`
  const type = text.indexOf('_delta"', text.indexOf('"delta"', from));
  const colon = type < 0 ? -1 : text.indexOf(":", type);
  if (colon >= 0 && colon < to) notes.countText(text, colon + 1);
}

/** Each count that is stated later replaces the one before: they are totals. */
function noteUsage(notes: EventNotes, usage: unknown): void {
  if (!isJsonObject(usage)) return;
  const counts = Object.entries(usage).filter(([, count]) => count !== null);
  notes.counts = { ...notes.counts, ...Object.fromEntries(counts) };
  notes.usage = messageUsage(notes.counts);
}

/** Before these, nothing of the answer was made. */
const ANNOUNCEMENTS = new Set([
  "",
  "ping",
  "keepalive",
  "response.created",
  "response.in_progress",
  "response.queued",
]);

/** OpenAI's: https://platform.openai.com/docs/api-reference/responses-streaming. */
function readResponsesEvent(notes: EventNotes, event: EventPlace): void {
  if (isLineOf(DELTA_LINE.responses, event)) {
    return noteTextDelta(notes, event);
  }
  const name = nameOf(event);
  if (name.endsWith(".delta")) return noteTextDelta(notes, event);
  if (ANNOUNCEMENTS.has(name)) return;
  if (name === DONE) return noteDone(notes);
  if (name === "error" || name === "response.failed") {
    notes.failure = { text: textOf(event), data: dataOf(event) };
    return;
  }
  notes.hasBegun = true;
  if (name !== "response.completed" && name !== "response.incomplete") return;
  notes.isFinished = true;
  const data = dataOf(event);
  if (!isJsonObject(data)) return;
  // A few servers have its members in the event itself.
  const { response = data } = data;
  noteCounts(notes, isJsonObject(response) ? response.usage : null);
}

function noteTextDelta(
  notes: EventNotes,
  { text, from, to }: EventPlace,
): void {
  notes.hasBegun = true;
  const at = text.indexOf('"delta":', from);
  if (at >= 0 && at < to) notes.countText(text, at + 8);
}

const FINISH_REASON = /^"finish_reason": *"[^"]/;

/** OpenAI's older form: `data: {…,"choices":[{"text":"Hello",…}]}`. */
function readCompletionsEvent(notes: EventNotes, event: EventPlace): void {
  const { text, from, to } = event;
  const has = (what: string) => {
    const at = text.indexOf(what, from);
    return at >= 0 && at < to ? at : -1;
  };
  if (has("data:") < 0) return;
  if (has("[DONE]") >= 0 && to - from < 20) {
    notes.isFinished = true;
    return;
  }
  const choices = has('"choices"');
  if (choices < 0) {
    const data = dataOf(event);
    if (isJsonObject(data) && isJsonObject(data.error)) {
      notes.failure = { text: textOf(event), data };
    }
  }
  const piece = has('"text":');
  if (piece >= 0) {
    notes.hasBegun = true;
    notes.countText(text, piece + 7);
  }
  const finish = has('"finish_reason":');
  // Some servers have an empty one in all events but the last.
  if (finish >= 0 && FINISH_REASON.test(text.slice(finish, to))) {
    notes.isFinished = true;
  }
  if (has('"usage":{') < 0 && has('"usage": {') < 0) return;
  const data = dataOf(event);
  noteCounts(notes, isJsonObject(data) ? data.usage : null);
}

function noteCounts(notes: EventNotes, value: unknown): void {
  const usage = responseUsage(value);
  if (usage === null) return;
  notes.usage = usage;
  notes.isRepaired = !addsUp(usage);
}

/** A server that has said so is done, if it has made anything. */
function noteDone(notes: EventNotes): void {
  if (notes.hasBegun) notes.isFinished = true;
}

const DONE = "[DONE]";
/** How the data of nearly all events without an `event:` line begins. */
const TYPE_FIRST = ['data: {"type":', 'data:{"type":'];

/** The first lines of nearly all events, one for each token, as the servers write them. */
const DELTA_LINE = {
  messages: "event: content_block_delta\n",
  responses: "event: response.output_text.delta\n",
} as const;

const E = 0x65;
/**
 * Characters at the end of a line that are compared: `_block_delta`, or `.delta` after
 * any other name.
 */
const COMPARED_CHARS = 13;

/**
 * Whether an event begins with this line, or with one that only has another name of a
 * text. This is asked for each token, so nothing is copied.
 */
function isLineOf(line: string, { text, from, to }: EventPlace): boolean {
  const { length } = line;
  if (to - from <= length || text.charCodeAt(from) !== E) return false;
  for (let at = length - 1; at >= length - COMPARED_CHARS; at--) {
    if (text.charCodeAt(from + at) !== line.charCodeAt(at)) return false;
  }
  return true;
}

/** The name of an event: that of its `event:` line, or the `type` of its data. */
function nameOf(event: EventPlace): string {
  const { text, from } = event;
  if (text.startsWith("event:", from)) {
    return text.slice(from + 6, endOfLine(text, from + 6)).trim();
  }
  const isTypeFirst = TYPE_FIRST.some((start) => text.startsWith(start, from));
  if (!isTypeFirst) return nameWithin(event);
  // After the name of the member, whose quotes are the first two.
  const start = text.indexOf('"', text.indexOf(":", from + 5) + 1) + 1;
  return text.slice(start, text.indexOf('"', start));
}

/** The index of the end of a short line. */
function endOfLine(text: string, from: number): number {
  let at = from;
  while (at < text.length && !isLineEnd(text.charCodeAt(at))) at++;
  return at;
}

const isLineEnd = (code: number) => code === 0x0a || code === 0x0d;

/** The same where it has to be looked for: some servers sort the members by name. */
function nameWithin(event: EventPlace): string {
  const lines = linesOf(event);
  // The last one of several lines counts.
  const name = lines.findLast((line) => line.startsWith("event:"));
  if (name !== undefined) return name.slice(6).trim();
  if (lines.some((line) => /^data: *\[DONE\]/.test(line))) return DONE;
  const data = dataOf(event);
  if (!isJsonObject(data)) return "";
  if (typeof data.type === "string") return data.type;
  return isJsonObject(data.error) ? "error" : "";
}

/** Whether an event, of which no blank line was seen, has all of its data. */
export function isWholeEvent(event: EventPlace): boolean {
  return dataOf(event) !== undefined || nameWithin(event) === DONE;
}

/** As Latin-1: in UTF-8, more than line ends would look like one to a pattern. */
const linesOf = ({ text, from, to }: EventPlace): string[] =>
  text.slice(from, to).split(LINE_END);

function textOf({ bytes, from, to }: EventPlace): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from)
    .toString("utf8");
}

/** The data of an event, or undefined if it is no JSON. */
function dataOf(event: EventPlace): unknown {
  const lines = textOf(event).split(LINE_END)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5));
  try {
    return JSON.parse(lines.join("\n"));
  } catch {
    return undefined;
  }
}
