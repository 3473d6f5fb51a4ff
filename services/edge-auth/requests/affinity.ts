/**
 * What identifies the requests of one conversation, so that they can go to the same
 * model server: the client's name for its session, else the beginning of the
 * conversation.
 */
import { createHash } from "node:crypto";
import { isJsonObject } from "@gateway/shared/process/error_text";

/** A request, as far as it shows to which conversation it belongs. */
export interface ConversationRequest {
  /** The parsed body. */
  readonly body: unknown;
  /** By name in lower case. */
  readonly headers: {
    readonly [name: string]: string | string[] | undefined;
  };
  /** Whose request it is: accounts share no ids. */
  readonly account: string;
}

/** The headers that may name a session; the first one that is there counts. */
export const SESSION_HEADERS = [
  "x-claude-code-session-id",
  "session-id",
  "session_id",
  "x-session-id",
];
/** How many characters of an id or a text count: enough to tell conversations apart. */
const CHARS_MAX = 2_048;
/** How many tools and messages are looked at. */
const ITEMS_MAX = 128;
const DIGITS = 16;

/** 16 hexadecimal digits, the same for all requests of one conversation. */
export function conversationOf(
  { body, headers, account }: ConversationRequest,
): string {
  const members = isJsonObject(body) ? body : {};
  const id = sessionIn(members, headers);
  const parts = id === null ? ["begins", ...beginningOf(members)] : ["id", id];
  const hash = createHash("sha256");
  for (const part of [account, ...parts]) {
    // No two lists of parts are the same text.
    hash.update(`${part.length}:`).update(part);
  }
  return hash.digest("hex").slice(0, DIGITS);
}

type Members = { readonly [name: string]: unknown };

/** What the client calls its session; null if it calls it nothing. */
function sessionIn(
  { prompt_cache_key: cacheKey, user }: Members,
  headers: ConversationRequest["headers"],
): string | null {
  const ids = [cacheKey, ...SESSION_HEADERS.map((name) => headers[name]), user];
  const id = ids.find((each) => typeof each === "string" && each !== "");
  return typeof id === "string" ? id.slice(0, CHARS_MAX) : null;
}

/**
 * What the first request of a conversation has and all later ones repeat: the names of
 * its tools, its instructions, and the first message of the user. Of each text only the
 * beginning is read, however long it is.
 */
function beginningOf(body: Members): string[] {
  const { tools, system, instructions, messages, input, prompt } = body;
  const parts = [namesOf(tools), textOf(system), textOf(instructions)];
  const turns = [messages, input].find(Array.isArray) ?? [];
  for (const turn of turns.slice(0, ITEMS_MAX)) {
    if (!isJsonObject(turn)) break;
    parts.push(textOf(turn.content));
    if (turn.role === "user") return parts;
  }
  const whole = typeof input === "string" ? input : prompt;
  return [...parts, textOf(whole)];
}

function namesOf(tools: unknown): string {
  if (!Array.isArray(tools)) return "";
  return tools.slice(0, ITEMS_MAX).map((tool) => {
    if (!isJsonObject(tool)) return "";
    const inner = isJsonObject(tool.function) ? tool.function.name : undefined;
    return textOf(tool.name ?? inner ?? tool.type);
  }).join("\n").slice(0, CHARS_MAX);
}

/**
 * Members of parts that say something. Others may differ from request to request: what
 * is to be cached is marked elsewhere as a conversation grows.
 */
const SAYING = ["text", "content", "image_url", "url", "source", "data"];

/** The beginning of all texts in a value. */
function textOf(value: unknown): string {
  let text = "";
  const add = (each: unknown): void => {
    if (text.length >= CHARS_MAX) return;
    if (typeof each === "string") {
      text += each.slice(0, CHARS_MAX - text.length);
    } else if (Array.isArray(each)) each.slice(0, ITEMS_MAX).forEach(add);
    else if (isJsonObject(each)) SAYING.forEach((name) => add(each[name]));
  };
  add(value);
  return text;
}
