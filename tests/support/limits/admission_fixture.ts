/** A Redis with keys, and what the limiter and the accounts keep in it. */
import { hashKeyValue } from "@gateway/shared/keys/key";
import {
  hashKey,
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
  LIMITER_FIELDS,
  parseUsageField,
  USAGE_KINDS,
  type UsageKind,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import type { RedisLink, RedisLinkOptions } from "@gateway/shared/redis/link";
import { type RedisServer, startRedisServer } from "../servers/redis_server.ts";
import { testRedisLink } from "../servers/redis_link.ts";
import { until } from "../wait_for.ts";

/**
 * Properties of a key for a test. Defaults: enabled, chat and models, all models, no
 * limits.
 */
export interface KeyOptions {
  limits?: Partial<Limits>;
  ownerLimits?: Partial<Limits>;
  ownerState?: "enabled" | "disabled";
  owner?: string;
  state?: string;
  scopes?: string;
  models?: string;
  /** As the record has them. */
  networks?: string;
  endUsers?: string;
  priority?: string;
  keepSeconds?: number;
  expiresAtMs?: number;
}

type Commands = Pick<RedisWorld, "command">;

const PATIENT_MS = 30_000;

/** What a request of 100 tokens is settled with. */
export const DONE = {
  promptTokens: 30,
  completionTokens: 70,
  kind: "complete",
} as const;

/** What the first key calls the data. */
export const STORE_NAME = `sto_${"s".repeat(20)}`;

/** What a world is started with: `config` has the lines of a redis.conf. */
export type RedisWorldOptions =
  & { config?: string[] }
  & Partial<RedisLinkOptions>;

/** A Redis server with keys, and links to it. */
export class RedisWorld implements AsyncDisposable {
  readonly redis: RedisServer;
  readonly #linkOptions: Partial<RedisLinkOptions>;
  readonly #links: RedisLink[] = [];
  #keyCount = 0;

  constructor(redis: RedisServer, linkOptions: Partial<RedisLinkOptions>) {
    this.redis = redis;
    this.#linkOptions = linkOptions;
  }

  /** The test's own link, which is opened first. */
  get link(): RedisLink {
    const [link] = this.#links;
    if (link === undefined) throw new Error("No link was opened");
    return link;
  }

  /** Opens a further link, as another process would. */
  async open(url = this.redis.url): Promise<RedisLink> {
    const link = testRedisLink({ url }, this.#linkOptions);
    this.#links.push(link);
    await link.ready(PATIENT_MS);
    return link;
  }

  /**
   * Sends a command. Waits for the server if it is away, for as long as a busy machine
   * needs.
   */
  async command(...args: string[]): Promise<unknown> {
    await until(() => this.link.state === "ready");
    return await this.link.command(args, { deadlineMs: PATIENT_MS });
  }

  /** Creates a key, and its owner where there is none. */
  async addKey(key: KeyOptions = {}): Promise<Principal> {
    const number = String(this.#keyCount++).padStart(20, "0");
    const ownerId = key.owner ?? `own_${number}`;
    const principal = { keyId: `key_${number}`, ownerId };
    await this.command("SET", STORE_KEY, STORE_NAME, "NX");
    await this.#setHash(recordKey(principal), {
      [KEY_FIELDS.state]: key.state ?? "enabled",
      [KEY_FIELDS.scopes]: key.scopes ?? "chat,models",
      [KEY_FIELDS.models]: key.models ?? "",
      [KEY_FIELDS.networks]: key.networks ?? "",
      [KEY_FIELDS.endUsers]: key.endUsers ?? "",
      ...key.priority && { [KEY_FIELDS.priority]: key.priority },
      ...key.keepSeconds !== undefined &&
        { [KEY_FIELDS.keepSeconds]: String(key.keepSeconds) },
      [KEY_FIELDS.expiresAtMs]: String(key.expiresAtMs ?? 0),
      ...limitFields(key.limits),
    });
    await this.#setHash(ownerLimitsKey(ownerId), {
      ...key.ownerLimits && limitFields(key.ownerLimits),
      ...key.ownerState && { [KEY_FIELDS.state]: key.ownerState },
    });
    return principal;
  }

  /** Writes whose key a value is. */
  async nameKey(value: string, { keyId, ownerId }: Principal): Promise<void> {
    const name = hashKey(hashKeyValue(value));
    await this.command("SET", name, `${keyId}:${ownerId}`);
  }

  /** Replaces fields of a key's record. */
  setKey(
    principal: Principal,
    fields: Record<string, string>,
  ): Promise<void> {
    return this.#setHash(recordKey(principal), fields);
  }

  /** The server's clock, Unix ms. */
  async time(): Promise<number> {
    const reply = await this.link.command(["TIME"]);
    if (!Array.isArray(reply)) throw new Error("TIME answers an array");
    return Number(reply[0]) * 1_000 + Number(reply[1]) / 1_000;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#links.map((link) => link.close()));
    await this.redis[Symbol.asyncDispose]();
  }

  async #setHash(name: string, fields: Record<string, string>): Promise<void> {
    const words = Object.entries(fields).flat();
    if (words.length > 0) await this.command("HSET", name, ...words);
  }
}

/** Starts a Redis server, and opens the test's own link. */
export async function startRedisWorld(
  { config = [], ...linkOptions }: RedisWorldOptions = {},
): Promise<RedisWorld> {
  const redis = await startRedisServer({ config: config.join("\n") });
  const world = new RedisWorld(redis, linkOptions);
  await world.open();
  return world;
}

/** Scripts that the server has run: an admission is one. */
export async function scriptCalls(world: RedisWorld): Promise<number> {
  const stats = String(await world.command("INFO", "commandstats"));
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
}

function limitFields(
  limits: Partial<Limits> = {},
): Record<string, string> {
  const fields: Readonly<Record<string, string>> = KEY_FIELDS;
  const all = Object.entries({ ...UNLIMITED, ...limits });
  return Object.fromEntries(
    all.map(([name, limit]) => [fields[name] ?? name, String(limit)]),
  );
}

/** Sums of all usage counters of a key, over all days and hours. */
export interface UsageCounted {
  requests: number;
  promptTokens: number;
  completionTokens: number;
  images: number;
  characters: number;
  audioSeconds: number;
  videoSeconds: number;
  errors: number;
  refused: number;
  /** In billionths. */
  cost: number;
  unpriced: number;
  lostRequests: number;
  lostCost: number;
}

/** Reads the usage counters of a key and adds them up. */
export async function usageCounted(
  world: Commands,
  { ownerId, keyId }: Principal,
): Promise<UsageCounted> {
  const sums = new Map<string, number>();
  const names = await world.command("KEYS", `use:{${ownerId}}:${keyId}:*`);
  for (const name of Array.isArray(names) ? names : []) {
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
    cost: sum("cost"),
    unpriced: sum("unpriced"),
    lostRequests: sum("lostRequests"),
    lostCost: sum("lostCost"),
  };
}

/** The doubles that a field of a hash is packed of. Null: there is none. */
async function readDoubles(world: Commands, key: string, field: string) {
  // Packed bytes do not survive being read as text.
  const script = `local s = redis.call('HGET', KEYS[1], ARGV[1])
    return s and string.format(string.rep('%.17g ', #s / 8),
      struct.unpack('<' .. string.rep('d', #s / 8), s))`;
  const text = await world.command("EVAL", script, "1", key, field);
  return typeof text === "string" ? text.trim().split(" ").map(Number) : null;
}

/**
 * What the limiter remembers of a key: `tat` is a theoretical arrival time, Unix ms.
 */
export interface LimiterState {
  lastAtMs: number;
  requestsTatMs: number;
  tokensTatMs: number;
  /** Days since 1970. */
  day: number;
  /** Tokens that were used on that day. */
  dayTokens: number;
  /** The limits that applied. */
  requestsPerMinute: number;
  tokensPerMinute: number;
}

/** Reads the packed state of a `lim:` key. Null: there is none. */
export async function readState(
  world: Commands,
  key: string,
): Promise<LimiterState | null> {
  const doubles = await readDoubles(world, key, LIMITER_FIELDS.state);
  const at = (index: number) => doubles?.[index] ?? NaN;
  return doubles && {
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
  world: Commands,
  key: string,
  unit: UsageUnit,
) {
  const doubles = await readDoubles(world, key, dayLimitField(unit));
  return doubles && { day: doubles[0], count: doubles[1] };
}

/** Writes the packed state of a `lim:` key. */
export async function writeState(
  world: Commands,
  key: string,
  { lastAtMs, requestsTatMs, tokensTatMs, day, dayTokens, ...own }:
    LimiterState,
): Promise<void> {
  const times = [lastAtMs, requestsTatMs, tokensTatMs]
    .map((ms) => ms - LIMITER_EPOCH_MS);
  const limits = [own.requestsPerMinute, own.tokensPerMinute];
  const doubles = [...times, day, dayTokens, ...limits];
  await writeDoubles(world, [key, LIMITER_FIELDS.state], doubles);
}

/** Packs doubles into a field of a hash. */
async function writeDoubles(
  world: Commands,
  [key, field]: readonly [key: string, field: string],
  doubles: readonly number[],
): Promise<void> {
  const script = `redis.call('HSET', KEYS[1], ARGV[1],
    struct.pack('<' .. string.rep('d', #ARGV - 1), unpack(ARGV, 2)))`;
  const args = [key, field, ...doubles.map(String)];
  await world.command("EVAL", script, "1", ...args);
}

/**
 * A digest of all data of the server but expiry times: a call that changes nothing
 * leaves it equal.
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
