/** Notices in Redis: each is noted once, whichever process does it. */
import { auditKey, DUE_NOTICES_KEY } from "@gateway/shared/keys/record";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import {
  type Actor,
  AUDIT_ENTRIES_MAX,
  type AuditAction,
  encodeAudit,
} from "../audit/audit_log.ts";
import { asNumber, asTexts } from "../store/redis.ts";
import { digest } from "../store/secret.ts";
import claimLua from "./lua/claim.lua" with { type: "text" };
import noteLua from "./lua/note.lua" with { type: "text" };

const OUTBOX_KEY = "notices:outbox";
const SCAN_KEY = "notices:scan";
const NOTE = defineScript("key-admin/note", noteLua, { AUDIT_ENTRIES_MAX });
const CLAIM = defineScript("key-admin/claim", claimLua);
/** The actor of what the gateway does by itself, as the audit log names it. */
const GATEWAY: Actor = { by: "gateway", ip: "" };

/** A notice that is to be noted. */
export interface Note {
  /** Its subject: notices with the same one are noted once. */
  readonly subject: string;
  /** For how long it is remembered, in ms. */
  readonly rememberedMs: number;
  /** The message of an edge about it; absent if there is none. */
  readonly due?: string;
  readonly ownerId: string;
  readonly audit: {
    readonly action: AuditAction;
    readonly detail: string;
    readonly keyId?: string;
    readonly hint?: string;
    readonly description?: string;
  };
  /** The text to deliver; null if it is delivered to nobody. */
  readonly delivery: string | null;
}

/** Keeps notices in Redis until they are delivered: each is noted once. */
export class NoticeStore {
  readonly #redis: Pick<RedisLink, "command" | "evalScript">;

  constructor(redis: Pick<RedisLink, "command" | "evalScript">) {
    this.#redis = redis;
  }

  /** Returns some of the messages that edges have left. */
  async due(count: number): Promise<string[]> {
    const some = ["SRANDMEMBER", DUE_NOTICES_KEY, String(count)];
    return asTexts(await this.#redis.command(some));
  }

  /** Drops a message of an edge. */
  async drop(due: string): Promise<void> {
    await this.#redis.command(["SREM", DUE_NOTICES_KEY, due]);
  }

  /**
   * Notes a notice, to be delivered from `atMs` on. Returns false if it was noted
   * before.
   */
  async note(
    { subject, rememberedMs, due = "", ownerId, audit, delivery }: Note,
    atMs: number,
  ): Promise<boolean> {
    const keys = [
      `noticed:${digest(subject)}`,
      DUE_NOTICES_KEY,
      auditKey(ownerId),
      OUTBOX_KEY,
    ];
    const entry = encodeAudit({ ...GATEWAY, ...audit });
    const args = [String(rememberedMs), due, delivery ?? "", String(atMs)];
    const input = { keys, args: [...args, ...entry] };
    return asNumber(await this.#redis.evalScript(NOTE, input)) === 1;
  }

  /** Takes notices for delivery; they are due again at `untilMs`. */
  async claim(
    { nowMs, untilMs, count }: {
      nowMs: number;
      untilMs: number;
      count: number;
    },
  ): Promise<string[]> {
    const args = [nowMs, count, untilMs].map(String);
    const input = { keys: [OUTBOX_KEY], args };
    return asTexts(await this.#redis.evalScript(CLAIM, input));
  }

  /** Sets when the delivery of a notice is tried again. */
  async retry(delivery: string, atMs: number): Promise<void> {
    await this.#redis.command(["ZADD", OUTBOX_KEY, String(atMs), delivery]);
  }

  /** Forgets a notice that was delivered or given up. */
  async remove(delivery: string): Promise<void> {
    await this.#redis.command(["ZREM", OUTBOX_KEY, delivery]);
  }

  /** Whether this process is the one that looks at all keys, for `ms`. */
  async takesScan(ms: number): Promise<boolean> {
    const claim = ["SET", SCAN_KEY, "1", "NX", "PX", String(ms)];
    return await this.#redis.command(claim) !== null;
  }
}
