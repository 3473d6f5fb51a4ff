/**
 * Charges requests whose edge was lost while they ran: what they had reserved, once.
 * Their leases say what that was.
 */
import {
  LIMITER_EPOCH_MS,
  parseUsageSuffix,
} from "@gateway/shared/keys/limiter_state";
import {
  LEASE_KEYS_KEY,
  leaseKey,
  type Principal,
  SWEEP_KEY,
} from "@gateway/shared/keys/record";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import { remember } from "@gateway/shared/process/maps";
import type { RedisReply } from "@gateway/shared/redis/connection";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { Cost } from "./cost.ts";
import { type LeaseTerms, termsOf } from "./rate.ts";
import { SETTLE } from "./scripts.ts";
import { accountOf, settleCall, type Settlement } from "./settlement.ts";

/** What {@link LostRequests} needs. */
export interface LostRequestsOptions {
  redis: Pick<RedisLink, "state" | "evalScript" | "command">;
  now: MonotonicNow;
  /** What Redis' clock is expected to show; it may have jumped forward. */
  expectedMs: () => number;
  log: Log;
  /**
   * Is called for each charge, for the metrics. `nanos` is what was charged: what the
   * request held of budgets, or without any what its lease says.
   */
  onCharged?: (terms: LeaseTerms, nanos: number) => void;
}

/** How often one of the edges looks for expired leases. */
const LOOK_MS = 60_000;
/** Less, so that the next look finds no other edge's claim. */
const CLAIM_MS = 50_000;
/**
 * How often an edge notes keys. A request that is lost before, with its edge, is
 * charged when its key is used again within an hour.
 */
const NOTE_MS = 500;
/** A key that is in use is noted again after this long. */
const NOTED_MS = 10 * 60_000;
/** A key that nobody has noted for this long has no lease, nor an expired one. */
const FORGOTTEN_MS = 2 * 3_600_000;
const NOTED_KEYS_MAX = 100_000;
/** How many are charged in one call: what takes Redis a few ms, for others must wait. */
const CHARGED_AT_ONCE = 50;
const MS_PER_SECOND = 1_000;
const MICROS_PER_MS = 1_000;
const PATIENT = { deadlineMs: 1_000 };

/** Looks for expired leases once a minute, on one of the edges. */
export class LostRequests {
  readonly #options: LostRequestsOptions;
  readonly #timers: ReturnType<typeof setInterval>[] = [];
  #looking: Promise<void> | null = null;
  /** Keys that were noted, and when. */
  readonly #notedAtMs = new Map<string, number>();
  #toNote = new Set<string>();

  constructor(options: LostRequestsOptions) {
    this.#options = options;
  }

  /** A request of this key has a lease. Does not block or throw. */
  note({ ownerId, keyId }: Principal): void {
    const nowMs = this.#options.now();
    const notedAtMs = this.#notedAtMs.get(keyId) ?? -Infinity;
    if (nowMs - notedAtMs < NOTED_MS) return;
    const noted = { key: keyId, value: nowMs, sizeMax: NOTED_KEYS_MAX };
    remember(this.#notedAtMs, noted);
    this.#toNote.add(`${ownerId}:${keyId}`);
  }

  /** Looks now, and every minute. */
  start(): void {
    this.#lookSoon();
    this.#timers.push(
      setInterval(() => this.#lookSoon(), LOOK_MS),
      setInterval(() => void this.writeNotes(), NOTE_MS),
    );
  }

  /** Ends, after the look that is under way. */
  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    await this.writeNotes();
    await this.#looking;
  }

  /**
   * Writes which keys have leases. Never rejects: what fails is written the next time.
   */
  async writeNotes(): Promise<void> {
    const { redis, expectedMs } = this.#options;
    const notes = this.#toNote;
    if (notes.size === 0 || redis.state !== "ready") return;
    this.#toNote = new Set();
    const scored = [...notes].flatMap((name) => [String(expectedMs()), name]);
    try {
      await redis.command(["ZADD", LEASE_KEYS_KEY, ...scored], PATIENT);
    } catch {
      // Redis is away, which others report.
      for (const name of notes) this.#toNote.add(name);
    }
  }

  /** Charges all whose leases have expired. Returns how many. */
  async charge(): Promise<number> {
    const { redis } = this.#options;
    const nowMs = await this.#timeMs();
    const forgottenMs = String(nowMs - FORGOTTEN_MS);
    const range = ["ZRANGEBYSCORE", LEASE_KEYS_KEY, "-inf", "+inf"];
    const names = await redis.command(range, PATIENT);
    let charged = 0;
    for (const name of Array.isArray(names) ? names : []) {
      const [ownerId = "", keyId = ""] = String(name).split(":");
      charged += await this.#chargeKey({ ownerId, keyId }, nowMs);
    }
    await redis.command(
      ["ZREMRANGEBYSCORE", LEASE_KEYS_KEY, "-inf", forgottenMs],
      PATIENT,
    );
    return charged;
  }

  #lookSoon(): void {
    this.#looking ??= this.#look();
  }

  async #look(): Promise<void> {
    const { redis, log } = this.#options;
    try {
      if (redis.state !== "ready") return;
      const claim = ["SET", SWEEP_KEY, "1", "NX", "PX", String(CLAIM_MS)];
      if (await redis.command(claim, PATIENT) === null) return;
      const requests = await this.charge();
      if (requests > 0) log.warn("lost_requests_charged", { requests });
    } catch (error) {
      log.warn("lost_requests_not_charged", { error });
    } finally {
      this.#looking = null;
    }
  }

  async #chargeKey(principal: Principal, nowMs: number): Promise<number> {
    const { redis, expectedMs, onCharged } = this.#options;
    const untilMs = Math.min(nowMs, expectedMs()) - LIMITER_EPOCH_MS;
    // All at once: marks of those charged before are among them, and may come first.
    const range = ["ZRANGEBYSCORE", leaseKey(principal), "-inf"];
    const expired = await redis.command([...range, String(untilMs)], PATIENT);
    const lost = (Array.isArray(expired) ? expired : [])
      .map((id) => lostRequest(String(id), principal))
      .filter((each) => each !== null);
    const byAccount = Map.groupBy(
      lost,
      ({ settlement }) => accountOf(settlement),
    );
    let charged = 0;
    for (const batch of byAccount.values().flatMap(smallBatches)) {
      const input = settleCall(batch.map(({ settlement }) => settlement));
      const replies = await redis.evalScript(SETTLE, input, PATIENT);
      batch.forEach(({ terms }, at) => {
        const nanos = chargeIn(replies, at);
        if (nanos === null) return;
        charged += 1;
        onCharged?.(terms, nanos);
      });
    }
    return charged;
  }

  async #timeMs(): Promise<number> {
    const reply = await this.#options.redis.command(["TIME"], PATIENT);
    const [seconds, micros] = Array.isArray(reply) ? reply.map(Number) : [];
    return (seconds ?? NaN) * MS_PER_SECOND +
      Math.floor((micros ?? NaN) / MICROS_PER_MS);
  }
}

function* smallBatches<Each>(all: readonly Each[]): Generator<readonly Each[]> {
  for (let at = 0; at < all.length; at += CHARGED_AT_ONCE) {
    yield all.slice(at, at + CHARGED_AT_ONCE);
  }
}

/** What a lost request was charged; null: it has been settled before. */
function chargeIn(replies: RedisReply, at: number): number | null {
  const reply = Array.isArray(replies) ? replies[at] : null;
  return Array.isArray(reply) ? Number(reply[0]) : null;
}

/** The settlement of a lost request; null for an id that does not say enough. */
function lostRequest(
  id: string,
  principal: Principal,
): { settlement: Settlement; terms: LeaseTerms } | null {
  const terms = termsOf(id);
  if (terms === null || id.startsWith("!")) return null;
  const { promptTokens, completionTokens, unit, count, hour } = terms;
  const { model, endpoint } = parseUsageSuffix(terms.suffix);
  const cost: Cost = {
    promptTokens,
    completionTokens,
    unitsMade: count,
    nanos: terms.nanos,
    isUnpriced: terms.isUnpriced,
    kind: "failed",
  };
  const reservation = {
    id,
    principal,
    model,
    endpoint,
    atMs: hourMs(hour),
    reservedTokens: promptTokens + completionTokens,
    reservedUnits: unit === null ? null : { unit, count },
  };
  return { settlement: { reservation, cost, isLost: true }, terms };
}

/** `2026112809` in Unix ms. */
function hourMs(hour: string): number {
  const [year, month, day] = [
    hour.slice(0, 4),
    hour.slice(4, 6),
    hour.slice(6, 8),
  ];
  return Date.parse(`${year}-${month}-${day}T${hour.slice(8)}:00:00Z`);
}
