/**
 * Announces budgets that have reached a threshold and keys that expire: in the audit
 * log, the log, metrics, and to a URL. Edges and pages wait for none of this.
 */
import {
  type BudgetDays,
  TOTAL_WINDOW,
} from "@gateway/shared/keys/budget_calendar";
import {
  type KeyRecord,
  ownerSpendKey,
  spendKey,
} from "@gateway/shared/keys/record";
import type { WallNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import { counter, type MetricRegistry } from "@gateway/shared/process/metrics";
import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import { decodeKey } from "../keys/key_record.ts";
import { keysFrom } from "../keys/key_page.ts";
import type { KeyStore } from "../keys/key_store.ts";
import type { People } from "../operators/people.ts";
import { asList } from "../store/redis.ts";
import { digest } from "../store/secret.ts";
import {
  budgetBody,
  budgetDetail,
  expiryBody,
  type NoticeBody,
  parseDue,
  resetOf,
} from "./notice.ts";
import { type Note, NoticeStore } from "./notice_store.ts";
import { type NoticeTarget, sendNotice } from "./send_notice.ts";

/** Dependencies of {@link Notices}. */
export interface NoticesOptions {
  redis: RedisLink;
  keys: Pick<KeyStore, "get">;
  people: Pick<People, "accounts" | "name">;
  /** The currency of budgets now. */
  currency: () => string;
  days: BudgetDays;
  now: WallNow;
  log: Log;
  registry: MetricRegistry;
  /** The receiver of notices; null if they are not sent. */
  target: NoticeTarget | null;
}

/** The metrics of notices. */
export const NOTICE_METRICS = {
  noted: counter("gateway_notices_total", {
    help:
      "Notices: `budget_50`, `budget_80`, `budget_100` (a budget is spent to this percentage), `key_expires_7`, `key_expires_1` (a key expires within this many days). Each is counted once, by the key-admin that noted it.",
    labels: ["what"],
  }),
  deliveries: counter("gateway_notice_deliveries_total", {
    help:
      "Attempts to send a notice to `NOTIFY_URL`: `delivered`, `failed` (tried again), `given_up` (after a day).",
    labels: ["result"],
    zeros: [["delivered"], ["failed"], ["given_up"]],
  }),
};

const SECOND_MS = 1_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const POLL_MS = 5 * SECOND_MS;
const DUE_MAX = 100;
const DELIVERIES_MAX = 10;
const SEND_MS = 10 * SECOND_MS;
/** Longer than an attempt takes. */
const CLAIM_MS = 3 * SEND_MS;
/** A notice waits as long as it is old until it is tried again, within these bounds. */
const RETRY_MS_MIN = 5 * SECOND_MS;
const RETRY_MS_MAX = 15 * 60 * SECOND_MS;
const GIVE_UP_MS = DAY_MS;
const SCAN_MS = HOUR_MS;
/** Days before its end at which the owner of a key is told, the shortest first. */
const EXPIRY_DAYS = [1, 7];
/** For how long a notice is remembered: longer than its window lasts. */
const REMEMBERED_DAYS = { day: 3, month: 40, total: 400 };

const delivery = z.object({
  atMs: z.number(),
  body: z.looseObject({ id: z.string(), type: z.string() }),
});

/** Notes the messages of edges, looks for keys that expire, and sends notices. */
export class Notices {
  readonly #options: NoticesOptions;
  readonly #store: NoticeStore;
  readonly #metrics;
  readonly #stopping = new AbortController();
  #timer: ReturnType<typeof setInterval> | undefined;
  /** The work that is under way, by its kind. */
  readonly #running = new Map<string, Promise<void>>();

  constructor(options: NoticesOptions) {
    this.#options = options;
    this.#store = new NoticeStore(options.redis);
    this.#metrics = options.registry.record(NOTICE_METRICS);
  }

  /** Works every few seconds. */
  start(): void {
    const work = () => {
      this.#run("due", () => this.noteDue());
      this.#run("scan", () => this.#scan());
      this.#run("deliver", () => this.deliver());
    };
    work();
    this.#timer = setInterval(work, POLL_MS);
  }

  /** Ends when the work that is under way is done. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#stopping.abort();
    await Promise.all(this.#running.values());
  }

  /** Notes the messages of edges about budgets. */
  async noteDue(): Promise<void> {
    for (const due of await this.#store.due(DUE_MAX)) {
      const note = await this.#budgetNote(due);
      if (note === null) await this.#store.drop(due);
      else await this.#note(note);
    }
  }

  /** Notes the keys of all accounts that are about to expire. */
  async noteExpiring(): Promise<void> {
    const { people, redis } = this.#options;
    for await (const { ownerId, name } of people.accounts()) {
      for await (const { keyId, fields } of keysFrom(redis, ownerId)) {
        if (this.#stopping.signal.aborted) return;
        if (fields.state === undefined) continue;
        const key = decodeKey({ ownerId, keyId }, fields);
        const days = this.#expiresWithin(key);
        if (days === null) continue;
        await this.#note(await this.#expiryNote(key, { name, days }));
      }
    }
  }

  /**
   * Sends the notices that are due, each once; a delivery that fails is tried again
   * later.
   */
  async deliver(): Promise<void> {
    const { target, now } = this.#options;
    if (target === null) return;
    const nowMs = now();
    const untilMs = nowMs + CLAIM_MS;
    const claim = { nowMs, untilMs, count: DELIVERIES_MAX };
    const claimed = await this.#store.claim(claim);
    await Promise.all(claimed.map((text) => this.#send(text, target)));
  }

  #run(what: string, work: () => Promise<void>): void {
    if (this.#running.has(what)) return;
    const { log } = this.#options;
    const running = work()
      .catch((error) => log.warn("notices_delayed", { what, error }))
      .finally(() => this.#running.delete(what));
    this.#running.set(what, running);
  }

  async #scan(): Promise<void> {
    if (await this.#store.takesScan(SCAN_MS)) await this.noteExpiring();
  }

  async #budgetNote(due: string): Promise<Note & { what: string } | null> {
    const { redis, keys, people, currency, days, now } = this.#options;
    const parsed = parseDue(due);
    if (parsed === null) return null;
    const { ownerId, keyId, window, percent, allowed } = parsed;
    const key = keyId === null ? null : await keys.get(ownerId, keyId);
    const name = await people.name(ownerId);
    if (name === null || (keyId !== null && key === null)) return null;
    const spendOf = keyId === null
      ? ownerSpendKey(ownerId, window)
      : spendKey({ ownerId, keyId }, window);
    const [spent] = asList(await redis.command(["HMGET", spendOf, "s"]));
    const reached = {
      account: { id: ownerId, name },
      key,
      window,
      percent,
      allowed,
      spent: Number(spent ?? 0),
      currency: currency(),
      resetMs: resetOf(window, days, now()),
    };
    return {
      what: `budget_${percent}`,
      subject: due,
      due,
      rememberedMs: rememberedDays(window) * DAY_MS,
      ownerId,
      audit: {
        action: "budget.reached",
        detail: budgetDetail(reached),
        ...key && nameOf(key),
      },
      delivery: this.#deliveryOf(budgetBody(digest(due), reached)),
    };
  }

  async #expiryNote(
    key: KeyRecord,
    { name, days }: { name: string; days: number },
  ): Promise<Note & { what: string }> {
    const { people } = this.#options;
    const { id, ownerId, expiresAtMs } = key;
    const subject = `${id} ${expiresAtMs} ${days}`;
    const createdBy = key.createdBy && await people.name(key.createdBy);
    const expires = {
      account: { id: ownerId, name },
      key,
      createdBy,
      days,
      expiresAtMs: expiresAtMs ?? 0,
    };
    const at = new Date(expires.expiresAtMs).toISOString();
    return {
      what: `key_expires_${days}`,
      subject,
      rememberedMs: (days + 1) * DAY_MS,
      ownerId,
      audit: {
        action: "key.expires_soon",
        detail: `at ${at}`,
        ...nameOf(key),
      },
      delivery: this.#deliveryOf(expiryBody(digest(subject), expires)),
    };
  }

  /**
   * Returns the days within which a key expires if its owner is to be told; null
   * otherwise.
   */
  #expiresWithin(
    { state, expiresAtMs, createdAtMs, replacedBy }: KeyRecord,
  ): number | null {
    const leftMs = (expiresAtMs ?? Infinity) - this.#options.now();
    // Whoever rotated a key knows that the old one expires.
    if (state !== "enabled" || leftMs <= 0 || replacedBy !== null) return null;
    const days = EXPIRY_DAYS.find((each) => leftMs <= each * DAY_MS);
    // A key that was made for a day is expected to expire within a week.
    const isShort = (expiresAtMs ?? 0) - createdAtMs <= (days ?? 0) * DAY_MS;
    return days === undefined || isShort ? null : days;
  }

  /** Returns the text that is kept for delivery; null if notices are not sent. */
  #deliveryOf(body: NoticeBody): string | null {
    const { target, now } = this.#options;
    if (target === null) return null;
    const atMs = now();
    const time = new Date(atMs).toISOString();
    return JSON.stringify({ atMs, body: { ...body, time } });
  }

  async #note({ what, ...note }: Note & { what: string }): Promise<void> {
    const { log, now } = this.#options;
    if (!await this.#store.note(note, now())) return;
    this.#metrics.noted.with(what).add();
    const { ownerId, audit: { keyId, detail } } = note;
    const line = { ownerId, keyId, detail };
    if (note.due === undefined) log.info("key_expires_soon", line);
    else log.info("budget_reached", line);
  }

  async #send(text: string, target: NoticeTarget): Promise<void> {
    const { now, log } = this.#options;
    const { atMs, body } = delivery.parse(JSON.parse(text));
    const { deliveries } = this.#metrics;
    const { signal: stopping } = this.#stopping;
    const signal = AbortSignal.any([stopping, AbortSignal.timeout(SEND_MS)]);
    const { id, type } = body;
    const call = { ...target, id, nowMs: now(), signal };
    try {
      await sendNotice(JSON.stringify(body), call);
    } catch (error) {
      const ageMs = now() - atMs;
      if (ageMs >= GIVE_UP_MS) {
        deliveries.with("given_up").add();
        log.error("notice_given_up", { notice: id, type, error });
        return await this.#store.remove(text);
      }
      deliveries.with("failed").add();
      log.warn("notice_not_delivered", { notice: id, type, error });
      const waitMs = Math.min(RETRY_MS_MAX, Math.max(RETRY_MS_MIN, ageMs));
      return await this.#store.retry(text, now() + waitMs);
    }
    deliveries.with("delivered").add();
    await this.#store.remove(text);
  }
}

const nameOf = ({ id, hint, description }: KeyRecord) => ({
  keyId: id,
  hint,
  description,
});

function rememberedDays(window: string): number {
  if (window === TOTAL_WINDOW) return REMEMBERED_DAYS.total;
  return window.startsWith("d") ? REMEMBERED_DAYS.day : REMEMBERED_DAYS.month;
}
