/**
 * The connection of the stores, and its untyped replies: each reader throws when a
 * reply has an unexpected type.
 */
import { monotonicNow, type WallNow } from "@gateway/shared/process/clock";
import type { RandomBytes } from "@gateway/shared/process/ids";
import {
  createRedisLink,
  type RedisLink,
  type RedisLinkOptions,
} from "@gateway/shared/redis/link";
import { z } from "zod";

/** Longer than at an edge, since people rather than programs wait. */
const DEADLINE_MS = 2_000;

/** What all stores are made with: connections to Redis, randomness and the clock. */
export interface StoreDeps {
  redis: RedisLink;
  /** A separate connection, since waiting for the disk blocks everything behind it. */
  writer: RedisLink;
  randomBytes: RandomBytes;
  now: WallNow;
}

/**
 * Opens a link and waits for the first connection. Rejects with
 * `RedisUnavailableError`, whose cause says why.
 */
export async function connectRedis(
  { address, log, waitMs }:
    & Pick<RedisLinkOptions, "address" | "log">
    & { waitMs: number },
): Promise<RedisLink> {
  const link = createRedisLink({
    address: { ...address, clientName: "key-admin" },
    log,
    now: monotonicNow,
    random: Math.random,
    deadlineMs: DEADLINE_MS,
    probe: ["SET", "barrier", "1", "EX", "60"],
  });
  await link.ready(waitMs).catch(async (error) => {
    await link.close();
    throw error;
  });
  return link;
}

/** A cursor that did not come from a page. */
export class BadCursor extends Error {
  override name = "BadCursor";
  override message =
    "The cursor is invalid: use one that an earlier page returned";
}

/** The rows of one page of a list, and where the next one begins. */
export interface RowPage<T> {
  rows: T[];
  /** The cursor of the next page; null at the end. */
  next: string | null;
  /** Whether the order of the rows leaves out some: only this many are compared. */
  isPartial?: boolean;
}

/** The fields of a hash or of an entry in a stream. */
export type Fields = Readonly<Record<string, string>>;

const text = z.string();

/** Reads a reply of Redis as a string. Throws if it is something else. */
export const asText = (reply: unknown): string => text.parse(reply);

/** A string, or null for what does not exist. */
export const asTextOrNull = (reply: unknown): string | null =>
  text.nullable().parse(reply);

/** An integer, or decimal text as scripts and hashes return it. */
export const asNumber = (reply: unknown): number =>
  z.number().parse(typeof reply === "number" ? reply : Number(asText(reply)));

/** Reads a reply as a list of anything. Throws if it is something else. */
export const asList = (reply: unknown): unknown[] =>
  z.array(z.unknown()).parse(reply);

/** A list of strings. */
export const asTexts = (reply: unknown): string[] => z.array(text).parse(reply);

/** `[field, value, field, value]`, as HGETALL and streams return it. */
export function asFields(reply: unknown): Fields {
  const flat = asTexts(reply);
  const names = flat.filter((_, at) => at % 2 === 0);
  return Object.fromEntries(
    names.map((name, at) => [name, flat[2 * at + 1] ?? ""]),
  );
}

/** Reads all fields of a hash; null if it does not exist. */
export async function readHash(
  redis: RedisLink,
  key: string,
): Promise<Fields | null> {
  const reply = asList(await redis.command(["HGETALL", key]));
  return reply.length === 0 ? null : asFields(reply);
}

/** Reads a string; null if it does not exist. */
export const readText = async (
  redis: RedisLink,
  key: string,
): Promise<string | null> => asTextOrNull(await redis.command(["GET", key]));
