/** Writes what edges leave in Redis: the state of limits, usage, and request logs. */
import {
  dayLimitField,
  FAILURE_REASONS,
  type FailureReason,
  LIMITER_EPOCH_MS,
  LIMITER_FIELDS,
  USAGE_KINDS,
  usageDay,
  type UsageEndpoint,
  usageField,
  usageHour,
  type UsageKind,
} from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimiterKey,
  ownerSpendKey,
  ownerUsageKey,
  type Principal,
  REQUEST_LOGS_KEY,
  requestLogKey,
  spendKey,
  usageKey,
} from "@gateway/shared/keys/record";
import { encodeRow, type RequestRow } from "@gateway/shared/keys/request_row";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";

/** The console whose Redis is written to. */
interface Site {
  readonly deps: { readonly redis: RedisLink };
}

const EPOCH_SECONDS = LIMITER_EPOCH_MS / 1_000;
const IMAGES = dayLimitField("images");
const USE_SCRIPT = defineScript(
  "test/use",
  `
local time = redis.call('TIME')
local now = (time[1] - ${EPOCH_SECONDS}) * 1000 + time[2] / 1000
local req, tok, used, running, images = unpack(ARGV)
local day = math.floor(now / 86400000)
redis.call('HSET', KEYS[1], 's', struct.pack('<ddddddd', now, now + req, now + tok, day, used, 0, 0))
redis.call('HSET', KEYS[1], '${IMAGES}', struct.pack('<dd', day, images))
for n = 1, running do redis.call('ZADD', KEYS[2], now + 3600000, 'lease' .. n) end
`,
);

/** How much of the limits of a key or an owner is in use. */
interface LimitUse {
  /** How far the admitted requests reach ahead of now. */
  requestsAheadMs?: number;
  /** How far the reserved tokens reach ahead of now. */
  tokensAheadMs?: number;
  /** Tokens of this day in UTC. */
  dayTokens?: number;
  /** Images of this day in UTC. */
  images?: number;
  /** Requests that hold a lease for an hour. */
  running?: number;
}

/**
 * Writes the state that admissions leave, of a key, or of its owner for a null `keyId`.
 */
export async function useLimits(
  { deps: { redis } }: Site,
  { ownerId, keyId }: { ownerId: string; keyId: string | null },
  {
    requestsAheadMs = 0,
    tokensAheadMs = 0,
    dayTokens = 0,
    running = 0,
    images = 0,
  }: LimitUse,
): Promise<void> {
  const ids = { ownerId, keyId: keyId ?? "" };
  const keys = keyId === null
    ? [ownerLimiterKey(ownerId), ownerLeaseKey(ownerId)]
    : [limiterKey(ids), leaseKey(ids)];
  const args = [requestsAheadMs, tokensAheadMs, dayTokens, running, images];
  await redis.evalScript(USE_SCRIPT, { keys, args: args.map(String) });
}

const COUNTERS = [
  ...Object.entries(USAGE_KINDS),
  ...FAILURE_REASONS.map((reason) => [reason, reason] as const),
];

/** Numbers by what they count; what is missing is 0. */
export type UseCounts = Readonly<
  Partial<Record<UsageKind | FailureReason, number>>
>;

/** The usage of one model in one hour. */
interface HourOfUse {
  /** A moment of the hour. */
  atMs: number;
  counts: UseCounts;
  /** Missing if the requests named no model that exists. */
  model?: string;
  /** Missing if an earlier version counted them. */
  endpoint?: UsageEndpoint;
}

/** Counts as an edge does: for the key and for its owner. */
export async function countUse(
  { deps: { redis } }: Site,
  principal: Principal,
  { atMs, counts, model = "", endpoint }: HourOfUse,
): Promise<void> {
  const day = usageDay(atMs);
  const countOf: Readonly<Record<string, number>> = counts;
  const keys = [
    usageKey(principal, day),
    ownerUsageKey(principal.ownerId, day),
  ];
  const lastUse = [LIMITER_FIELDS.lastUsedAtMs, String(atMs)];
  await redis.command(["HSET", limiterKey(principal), ...lastUse]);
  for (const [kind, name] of COUNTERS) {
    const count = countOf[kind];
    if (!count) continue;
    const field = usageField(usageHour(atMs), name, { model, endpoint });
    for (const key of keys) {
      await redis.command(["HINCRBY", key, field, String(count)]);
    }
  }
}

/** What is spent and held of a budget, in billionths. */
export interface BudgetUse {
  spent: number;
  held?: number;
}

/** Writes what budgets show of a key, or of its owner for a null `keyId`. */
export async function useBudgets(
  { deps: { redis } }: Site,
  { ownerId, keyId }: { ownerId: string; keyId: string | null },
  windows: Readonly<Record<string, BudgetUse>>,
): Promise<void> {
  for (const [window, { spent, held = 0 }] of Object.entries(windows)) {
    const name = keyId === null
      ? ownerSpendKey(ownerId, window)
      : spendKey({ ownerId, keyId }, window);
    await redis.command(["HSET", name, "s", String(spent), "h", String(held)]);
  }
}

/** Logs a request, as an edge does. `writtenMs` is the time of Redis' clock. */
export async function logRequest(
  { deps: { redis } }: Site,
  { ownerId, keyId }: Principal,
  { writtenMs = 1_000, ...details }: Partial<RequestRow> & {
    writtenMs?: number;
  } = {},
): Promise<void> {
  const row: RequestRow = {
    timeMs: 0,
    requestId: "req_0636f2a1b3c4d5e60636f2a1b3c4d5e6",
    keyId,
    outcome: "refused",
    status: 429,
    code: "rate_limit_exceeded",
    reason: "tokens_per_minute",
    param: "",
    model: "small-1",
    endpoint: "chat",
    durationMs: 3,
    firstByteMs: null,
    backend: "",
    attempts: 0,
    clientAddress: "192.0.2.77",
    more: 0,
    budget: "",
    ...details,
  };
  const log = requestLogKey(ownerId);
  const id = `${writtenMs}-*`;
  await redis.command(["XADD", log, id, "row", encodeRow(row)]);
  const time = String(writtenMs);
  await redis.command(["ZADD", REQUEST_LOGS_KEY, time, ownerId]);
}
