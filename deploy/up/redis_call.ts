import type { RedisAddress } from "@gateway/shared/redis/link";
import {
  type Endpoint,
  type EndpointTls,
  withConnection,
  writeAll,
} from "./connection.ts";

/** A reply of Redis (RESP2). Errors are thrown, see {@link RedisReplyError}. */
export type Reply = string | number | null | Reply[];

/** Redis answered with an error, for example `NOAUTH Authentication required.` */
export class RedisReplyError extends Error {}

/** Where an address leads. */
export interface RedisEndpoint extends Endpoint {
  /** What must be sent first: `AUTH` and `SELECT`, as far as the address asks for them. */
  greeting: string[][];
}

const DEFAULT_PORT = 6379;

/** Reads `redis://user:password@host:6379/0`, or `rediss://` for TLS. Throws a TypeError for anything else. */
export function redisEndpoint(address: RedisAddress): RedisEndpoint {
  const url = new URL(address.url);
  if (url.protocol !== "redis:" && url.protocol !== "rediss:") {
    throw new TypeError(`the address must begin with redis:// or rediss://`);
  }
  const greeting: string[][] = [];
  const user = address.username ?? decodeURIComponent(url.username);
  const password = address.password ?? decodeURIComponent(url.password);
  if (password) greeting.push(["AUTH", ...(user ? [user] : []), password]);
  const database = url.pathname.slice(1);
  if (database !== "") greeting.push(["SELECT", database]);
  return {
    hostname: url.hostname === "" ? "127.0.0.1" : url.hostname,
    port: url.port === "" ? DEFAULT_PORT : Number(url.port),
    ...(url.protocol === "rediss:" ? { tls: tlsOf(address) } : {}),
    greeting,
  };
}

function tlsOf({ tlsCa, tlsCert, tlsKey }: RedisAddress): EndpointTls {
  return {
    ...(tlsCa === undefined ? {} : { caCerts: [tlsCa] }),
    ...(tlsCert === undefined || tlsKey === undefined
      ? {}
      : { client: { cert: tlsCert, key: tlsKey } }),
  };
}

/**
 * Sends commands over a connection of its own and answers with their replies.
 * For the few questions of a launcher, this starts faster than a client library.
 *
 * Throws a {@link RedisReplyError} when Redis refuses one of them, and an Error
 * with a plain message when it cannot be reached within `timeoutMs`.
 */
export async function redisCall(
  address: RedisAddress,
  commands: readonly (readonly string[])[],
  timeoutMs: number,
): Promise<Reply[]> {
  const endpoint = redisEndpoint(address);
  const all = [...endpoint.greeting, ...commands];
  const replies = await withConnection(endpoint, timeoutMs, async (to) => {
    await writeAll(to, encodeCommands(all));
    return await readReplies(to, all.length);
  });
  return replies.slice(endpoint.greeting.length);
}

function encodeCommands(commands: readonly (readonly string[])[]): Uint8Array {
  const encoder = new TextEncoder();
  const text = commands.map((words) =>
    `*${words.length}\r\n` +
    words.map((word) => `$${encoder.encode(word).length}\r\n${word}\r\n`)
      .join("")
  ).join("");
  return encoder.encode(text);
}

const CHUNK_BYTES = 4_096;

async function readReplies(
  connection: Deno.Conn,
  count: number,
): Promise<Reply[]> {
  const chunk = new Uint8Array(CHUNK_BYTES);
  // Latin-1 keeps one character per byte, so that lengths can be counted.
  const decoder = new TextDecoder("latin1");
  let text = "";
  while (true) {
    const replies = parseReplies(text, count);
    if (replies) return replies;
    const size = await connection.read(chunk);
    if (size === null) throw new Error("the connection was closed");
    text += decoder.decode(chunk.subarray(0, size));
  }
}

interface Parsed {
  reply: Reply;
  end: number;
}

function parseReplies(text: string, count: number): Reply[] | undefined {
  const replies: Reply[] = [];
  let at = 0;
  while (replies.length < count) {
    const parsed = parseReply(text, at);
    if (!parsed) return undefined;
    replies.push(parsed.reply);
    at = parsed.end;
  }
  return replies;
}

/** The reply that begins at `at`, or `undefined` while it is not complete. */
function parseReply(text: string, at: number): Parsed | undefined {
  const lineEnd = text.indexOf("\r\n", at);
  if (lineEnd < 0) return undefined;
  const line = text.slice(at + 1, lineEnd);
  const end = lineEnd + 2;
  switch (text[at]) {
    case "+":
      return { reply: line, end };
    case ":":
      return { reply: Number(line), end };
    case "-":
      throw new RedisReplyError(line);
    case "$":
      return parseBulk(text, Number(line), end);
    case "*":
      return parseArray(text, Number(line), end);
    default:
      throw new Error("what answers there is not Redis");
  }
}

function parseBulk(text: string, size: number, at: number): Parsed | undefined {
  if (size < 0) return { reply: null, end: at };
  if (text.length < at + size + 2) return undefined;
  return { reply: text.slice(at, at + size), end: at + size + 2 };
}

function parseArray(
  text: string,
  count: number,
  start: number,
): Parsed | undefined {
  if (count < 0) return { reply: null, end: start };
  const reply: Reply[] = [];
  let end = start;
  for (let i = 0; i < count; i++) {
    const parsed = parseReply(text, end);
    if (!parsed) return undefined;
    reply.push(parsed.reply);
    end = parsed.end;
  }
  return { reply, end };
}
