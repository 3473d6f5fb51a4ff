import { Buffer } from "node:buffer";
import {
  KEY_FIELDS,
  type Limits,
  ownerLimitsKey,
  type Principal,
  recordKey,
  STORE_KEY,
  UNLIMITED,
} from "@gateway/shared/keys/record";
import {
  dayLimitField,
  LIMITER_EPOCH_MS,
  parseUsageField,
  USAGE_KINDS,
  type UsageKind,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { RedisScript } from "@gateway/shared/redis/script";
import { startRedisServer } from "./redis_server.ts";
import { testRedisLink } from "./redis_link.ts";
import { waitFor } from "./wait_for.ts";

/** Properties of a key for a test. Defaults: enabled, chat and models, all models, no limits. */
export interface KeyOptions {
  limits?: Partial<Limits>;
  ownerLimits?: Partial<Limits>;
  ownerState?: "enabled" | "disabled";
  owner?: string;
  state?: string;
  scopes?: string;
  models?: string;
  expiresAtMs?: number;
}

/** A redis-server with keys in it and links to it. */
export type RedisWorld = Awaited<ReturnType<typeof startRedisWorld>>;

const PATIENT_MS = 30_000;

/** What a request of 100 tokens is settled with. */
export const DONE = {
  promptTokens: 30,
  completionTokens: 70,
  kind: "complete",
} as const;

/** What the first key calls the data. */
export const STORE_NAME = `sto_${"s".repeat(20)}`;

export async function startRedisWorld(
  options: {
    /** Lines of a redis.conf. */
    config?: string[];
    log?: Log;
    scripts?: readonly RedisScript[];
  } = {},
) {
  const redis = await startRedisServer({
    config: options.config?.join("\n") ?? "",
  });
  const links: RedisLink[] = [];
  /** Opens a further link, as another process would. */
  const open = async (url = redis.url) => {
    const { config: _, ...ofLink } = options;
    const link = testRedisLink({ url }, ofLink);
    links.push(link);
    await link.ready(PATIENT_MS);
    return link;
  };
  /** The test's own link. */
  const link = await open();
  /** Waits for the server if it is away, for as long as a busy machine needs. */
  const command = async (...args: string[]): Promise<unknown> => {
    await waitFor(() => link.state === "ready", { what: "the test's link" });
    return await link.command(args, { deadlineMs: PATIENT_MS });
  };
  let keyCount = 0;
  return {
    ...{ redis, link, open, command },
    async addKey(key: KeyOptions = {}): Promise<Principal> {
      const number = String(keyCount++).padStart(20, "0");
      const principal = {
        keyId: `key_${number}`,
        ownerId: key.owner ?? `own_${number}`,
      };
      await command("SET", STORE_KEY, STORE_NAME, "NX");
      await command(
        "HSET",
        recordKey(principal),
        ...Object.entries({
          [KEY_FIELDS.state]: key.state ?? "enabled",
          [KEY_FIELDS.scopes]: key.scopes ?? "chat,models",
          [KEY_FIELDS.models]: key.models ?? "",
          [KEY_FIELDS.expiresAtMs]: String(key.expiresAtMs ?? 0),
          ...limitFields(key.limits),
        }).flat(),
      );
      const owner = {
        ...key.ownerLimits && limitFields(key.ownerLimits),
        ...key.ownerState && { [KEY_FIELDS.state]: key.ownerState },
      };
      if (Object.keys(owner).length > 0) {
        await command(
          "HSET",
          ownerLimitsKey(principal.ownerId),
          ...Object.entries(owner).flat(),
        );
      }
      return principal;
    },
    async setKey(principal: Principal, fields: Record<string, string>) {
      await command(
        "HSET",
        recordKey(principal),
        ...Object.entries(fields).flat(),
      );
    },
    /** The server's clock, Unix ms. */
    async time() {
      const reply = await link.command(["TIME"]);
      if (!Array.isArray(reply)) throw new Error("TIME answers an array");
      return Number(reply[0]) * 1_000 + Number(reply[1]) / 1_000;
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(links.map((each) => each.close()));
      await redis[Symbol.asyncDispose]();
    },
  };
}

/** Scripts that the server has run: an admission is one. */
export async function scriptCalls(world: RedisWorld): Promise<number> {
  const stats = String(await world.command("INFO", "commandstats"));
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
}

function limitFields(limits: Partial<Limits> = {}): Record<string, string> {
  const fields: Readonly<Record<string, string>> = KEY_FIELDS;
  return Object.fromEntries(
    Object.entries({ ...UNLIMITED, ...limits })
      .map(([name, limit]) => [fields[name] ?? name, String(limit)]),
  );
}

/** Sums of all usage counters of a key. */
export type UsageCounted = Record<UsageKind, number>;

/** Adds up what is counted for a key, over all days and hours. */
export async function usageCounted(
  world: Pick<RedisWorld, "command">,
  { ownerId, keyId }: Principal,
): Promise<UsageCounted> {
  const sums = new Map<string, number>();
  const names = await world.command("KEYS", `use:{${ownerId}}:${keyId}:*`);
  if (!Array.isArray(names)) throw new Error("KEYS answers an array");
  for (const name of names) {
    const flat = await world.command("HGETALL", String(name));
    if (!Array.isArray(flat)) throw new Error("HGETALL answers an array");
    for (let at = 0; at < flat.length; at += 2) {
      const { counter } = parseUsageField(String(flat[at]));
      sums.set(counter, (sums.get(counter) ?? 0) + Number(flat[at + 1]));
    }
  }
  const sum = (kind: UsageKind) => sums.get(USAGE_KINDS[kind]) ?? 0;
  return {
    requests: sum("requests"),
    promptTokens: sum("promptTokens"),
    completionTokens: sum("completionTokens"),
    images: sum("images"),
    characters: sum("characters"),
    audioSeconds: sum("audioSeconds"),
    videoSeconds: sum("videoSeconds"),
    errors: sum("errors"),
    refused: sum("refused"),
  };
}

/** The packed limiter state, times as Unix ms. */
export interface LimiterState {
  lastAtMs: number;
  requestsTatMs: number;
  tokensTatMs: number;
  day: number;
  dayTokens: number;
  requestsPerMinute: number;
  tokensPerMinute: number;
}

/** Reads the packed state of a `lim:` key. Null: there is none. */
export async function readState(
  world: Pick<RedisWorld, "command">,
  key: string,
): Promise<LimiterState | null> {
  // Packed bytes do not survive being read as text: the server writes them as hex.
  const script = `local s = redis.call('HGET', KEYS[1], 's')
    return s and (s:gsub('.', function (c) return string.format('%02x', c:byte()) end))`;
  const hex = await world.command("EVAL", script, "1", key);
  if (typeof hex !== "string") return null;
  const bytes = Buffer.from(hex, "hex");
  const at = (index: number) => bytes.readDoubleLE(index * 8);
  return {
    lastAtMs: at(0) + LIMITER_EPOCH_MS,
    requestsTatMs: at(1) + LIMITER_EPOCH_MS,
    tokensTatMs: at(2) + LIMITER_EPOCH_MS,
    day: at(3),
    dayTokens: at(4),
    requestsPerMinute: at(5),
    tokensPerMinute: at(6),
  };
}

/** Reads what is counted of a unit in a `lim:` key. Null: nothing yet. */
export async function readUnits(
  world: Pick<RedisWorld, "command">,
  key: string,
  unit: UsageUnit,
): Promise<{ day: number; count: number } | null> {
  const script = `local u = redis.call('HGET', KEYS[1], ARGV[1])
    return u and string.format('%d %d', struct.unpack('<dd', u))`;
  const field = dayLimitField(unit);
  const text = await world.command("EVAL", script, "1", key, field);
  if (typeof text !== "string") return null;
  const [day = NaN, count = NaN] = text.split(" ").map(Number);
  return { day, count };
}

/** Writes the packed state of a `lim:` key. */
export async function writeState(
  world: RedisWorld,
  key: string,
  state: LimiterState,
): Promise<void> {
  const script = `redis.call('HSET', KEYS[1], 's',
    struct.pack('<ddddddd', unpack(ARGV)))`;
  const relative = (ms: number) => String(ms - LIMITER_EPOCH_MS);
  await world.command(
    "EVAL",
    script,
    "1",
    key,
    relative(state.lastAtMs),
    relative(state.requestsTatMs),
    relative(state.tokensTatMs),
    String(state.day),
    String(state.dayTokens),
    String(state.requestsPerMinute),
    String(state.tokensPerMinute),
  );
}

/**
 * A digest of all that the server keeps, byte by byte: equal before and after a
 * call that changed nothing. Expiry times are not in it.
 */
export async function fingerprint(world: RedisWorld): Promise<string> {
  const script = `local all = {}
    for _, key in ipairs(redis.call('KEYS', '*')) do
      all[#all + 1] = key .. ' ' .. redis.sha1hex(redis.call('DUMP', key))
    end
    table.sort(all)
    return table.concat(all, '\\n')`;
  return String(await world.command("EVAL", script, "0"));
}
