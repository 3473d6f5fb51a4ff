/**
 * The records of kept answers in Redis: whose an answer is, how it is read, what it
 * costs, and how it has ended. The answers themselves are in the log.
 */
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { KEPT_KEY_BYTES, type KeptSubject } from "@gateway/shared/kept/entry";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import {
  DUE_ANSWERS_KEY,
  idempotencyKey,
  keptAnswerKey,
  keptAnswersKey,
  keptBytesKey,
  type Principal,
} from "@gateway/shared/keys/record";
import { FORWARD_NAMES } from "@gateway/shared/forward/endpoints";
import { MODEL_KINDS } from "@gateway/shared/models/kinds";
import {
  defineScript,
  type RedisLink,
  type RedisScript,
} from "@gateway/shared/redis/link";
import { z } from "zod";
import { reservationSchema } from "../limits/settlement.ts";
import { CLAIM_DUE, Registry } from "../store/registry.ts";
import closeLua from "./lua/close.lua" with { type: "text" };
import dueLua from "./lua/due.lua" with { type: "text" };
import goneLua from "./lua/gone.lua" with { type: "text" };
import openLua from "./lua/open.lua" with { type: "text" };
import reserveLua from "./lua/reserve.lua" with { type: "text" };

const OPEN = defineScript("open_kept", openLua);
const CLOSE = defineScript("close_kept", closeLua);
const DUE = defineScript("due_kept", dueLua);
const GONE = defineScript("gone_kept", goneLua);
const RESERVE = defineScript("reserve_kept", reserveLua);

/** What an edge loads for kept answers, beside `EDGE_SCRIPTS`. */
export const KEPT_SCRIPTS: readonly RedisScript[] = [
  OPEN,
  RESERVE,
  CLOSE,
  CLAIM_DUE,
  DUE,
  GONE,
];

/** How an answer is read, whichever edge sends it. */
const factsSchema = z.object({
  keyId: z.string(),
  model: z.string(),
  kind: z.enum(MODEL_KINDS),
  endpoint: z.enum(["chat", ...FORWARD_NAMES]),
  stream: z.boolean(),
  /** When its request came, in Unix ms. */
  createdAtMs: z.number(),
  /** For how long it is kept after its end. */
  keepMs: z.number(),
  /** The time by which the run has ended, in Unix ms. */
  endsByMs: z.number(),
});
/** The facts of an answer that hold from the beginning. */
export type KeptFacts = z.output<typeof factsSchema>;

/** What was reserved for an answer, and what bounds what it may be charged. */
const termsSchema = z.object({
  reservation: reservationSchema,
  estimate: z.object({
    promptTokens: z.number(),
    totalTokens: z.number(),
    bounds: z.object({
      promptTokensMax: z.number(),
      completionTokensMax: z.number(),
    }),
  }),
});
/** What any edge needs to settle the request of an answer. */
export type KeptTerms = z.output<typeof termsSchema>;

const usageSchema = z.record(z.string(), z.unknown()).nullable();

/** How an answer has ended. */
const endSchema = z.object({
  usage: usageSchema,
  completionTokens: z.number(),
  /** Null: it is complete. */
  error: z.object({
    code: z.string(),
    message: z.string(),
    status: z.number(),
    type: z.string(),
    wireCode: z.string().nullable(),
    retryAfterMs: z.number().nullable(),
  }).nullable(),
});
/** How the run of a kept answer has ended, which its readers are told. */
export type KeptEnd = z.output<typeof endSchema>;

/** The record of a kept answer. */
export interface KeptRecord extends KeptSubject {
  readonly ownerId: string;
  readonly state: "running" | "complete" | "failed";
  readonly facts: KeptFacts;
  /** Null until its request is admitted. */
  readonly terms: KeptTerms | null;
  /** Null while it runs. */
  readonly end: KeptEnd | null;
}

/** Names an answer among all accounts. */
export interface AnswerName {
  readonly ownerId: string;
  readonly requestId: string;
}

/** An answer that is to be kept. */
export interface Opening extends KeptSubject {
  readonly principal: Principal;
  /** The client's idempotency key; null: it has sent none. */
  readonly idempotencyKey: string | null;
  /** The digest of its path and its body. */
  readonly bodyDigest: string;
  readonly facts: KeptFacts;
  /** How long the record lasts if nobody ends it. */
  readonly lastsMs: number;
  /** What its request has reserved; null: it is not admitted yet. */
  readonly terms: KeptTerms | null;
}

/**
 * What has become of an opening. `repeat`: the key has sent the same request before,
 * and this is its answer. `mismatch`: it has sent another body with this idempotency
 * key. `full`: the account keeps as much as it may.
 */
export type Opened =
  | { readonly type: "new" | "mismatch" | "full" }
  | { readonly type: "repeat"; readonly requestId: string };

/** How a record ends. */
export interface Closing {
  readonly state: "complete" | "failed";
  readonly end: KeptEnd;
  readonly bytes: number;
  /** For how long it is still known. */
  readonly keepMs: number;
  /** Whether its idempotency key may be used again. */
  readonly isForgotten: boolean;
}

/** What {@link KeptRecords} needs. */
export interface KeptRecordsOptions {
  redis: Pick<RedisLink, "command" | "evalScript">;
  /** How many bytes the answers of an account may have. */
  accountBytesMax: number;
}

/** The records; methods reject with `service_unavailable` without Redis. */
export class KeptRecords {
  readonly #registry: Registry;
  readonly #accountBytesMax: number;

  constructor({ redis, accountBytesMax }: KeptRecordsOptions) {
    this.#registry = new Registry(redis);
    this.#accountBytesMax = accountBytesMax;
  }

  /** Opens a record, or finds the answer that the key has got before. */
  async open(opening: Opening): Promise<Opened> {
    const { principal, requestId, key, bodyDigest, facts } = opening;
    const { lastsMs, terms } = opening;
    const { ownerId } = principal;
    const once = opening.idempotencyKey;
    const reply = await this.#registry.run(OPEN, [
      ...keysOf({ ownerId, requestId }),
      ...once === null ? [] : [idempotencyKey(principal, digestOf(once))],
    ], [
      requestId,
      bodyDigest,
      String(lastsMs),
      String(KEPT_LIMITS.reservedBytes),
      String(this.#accountBytesMax),
      keptAnswerKey(ownerId, ""),
      dueNameOf({ ownerId, requestId }),
      String(KEPT_LIMITS.orphanMs),
      "key",
      Buffer.from(key).toString("base64"),
      "facts",
      JSON.stringify(facts),
      ...terms === null ? [] : ["terms", textOf(terms)],
    ]);
    const [type, id] = Array.isArray(reply) ? reply : [];
    if (type === "repeat") return { type, requestId: String(id) };
    if (type === "new" || type === "mismatch" || type === "full") {
      return { type };
    }
    throw new Error(`A record of an answer was opened with: ${reply}`);
  }

  /** Adds what its request has reserved, and what is known of it by now. */
  async reserve(
    { ownerId, requestId }: AnswerName,
    terms: KeptTerms,
    facts: KeptFacts,
  ): Promise<void> {
    await this.#registry.run(RESERVE, [keptAnswerKey(ownerId, requestId)], [
      "terms",
      textOf(terms),
      "facts",
      JSON.stringify(facts),
    ]);
  }

  /** The record of an answer; null: it is unknown to the account, or no longer kept. */
  async find(name: AnswerName): Promise<KeptRecord | null> {
    const { ownerId, requestId } = name;
    const fields = ["state", "key", "facts", "terms", "end"];
    const key = keptAnswerKey(ownerId, requestId);
    const reply = await this.#registry.command("HMGET", key, ...fields);
    const values = z.array(z.string().nullable()).parse(reply);
    const [state, secret, facts, terms, end] = values;
    if (!state || !secret || !facts) return null;
    return {
      ownerId,
      requestId,
      state: z.enum(["running", "complete", "failed"]).parse(state),
      key: readKey(secret),
      facts: factsSchema.parse(JSON.parse(facts)),
      terms: terms ? termsSchema.parse(JSON.parse(terms)) : null,
      end: end ? endSchema.parse(JSON.parse(end)) : null,
    };
  }

  /**
   * Ends the record of an answer that runs, which is to be looked after when it has
   * expired. False if it had ended before.
   */
  async close(name: AnswerName, closing: Closing): Promise<boolean> {
    const { state, end, bytes, keepMs, isForgotten } = closing;
    const reply = await this.#registry.run(CLOSE, keysOf(name), [
      name.requestId,
      String(keepMs),
      String(bytes),
      isForgotten ? "1" : "",
      dueNameOf(name),
      "state",
      state,
      "end",
      JSON.stringify(endSchema.parse(end)),
    ]);
    return reply === 1;
  }

  /** Removes a record, in any state. False if there was none. */
  async remove(name: AnswerName): Promise<boolean> {
    const args = [name.requestId, "0", "0", "1", dueNameOf(name)];
    return await this.#registry.run(CLOSE, keysOf(name), args) === 1;
  }

  /** Answers are to be looked after this long from now, unless it is said again. */
  async setDueIn(ms: number, names: readonly AnswerName[]): Promise<void> {
    if (names.length === 0) return;
    await this.#registry.run(DUE, [DUE_ANSWERS_KEY], [
      String(ms),
      ...names.map(dueNameOf),
    ]);
  }

  /** Takes answers that are due; other edges do not get them for a while. */
  async claim(): Promise<AnswerName[]> {
    const due = await this.#registry.claimDue(DUE_ANSWERS_KEY, {
      countMax: KEPT_LIMITS.sweptMax,
      againMs: KEPT_LIMITS.orphanMs,
    });
    return due.map((each) => {
      const [ownerId = "", requestId = ""] = each.split(":");
      return { ownerId, requestId };
    });
  }

  /** Returns which of these answers have no record any more. */
  async gone(names: readonly AnswerName[]): Promise<AnswerName[]> {
    if (names.length === 0) return [];
    const keys = names.map(({ ownerId, requestId }) =>
      keptAnswerKey(ownerId, requestId)
    );
    const reply = await this.#registry.run(GONE, keys, []);
    const places = new Set(z.array(z.number()).parse(reply));
    return names.filter((_, index) => places.has(index + 1));
  }

  /** Nobody has to look after these answers any more. */
  async clearDue(names: readonly AnswerName[]): Promise<void> {
    if (names.length === 0) return;
    const members = names.map(dueNameOf);
    await this.#registry.command("ZREM", DUE_ANSWERS_KEY, ...members);
  }
}

/** The name of an answer among those that are due to be looked after. */
const dueNameOf = ({ ownerId, requestId }: AnswerName): string =>
  `${ownerId}:${requestId}`;

const keysOf = ({ ownerId, requestId }: AnswerName): string[] => [
  keptAnswerKey(ownerId, requestId),
  keptAnswersKey(ownerId),
  keptBytesKey(ownerId),
  DUE_ANSWERS_KEY,
];

/** Only the fields of the schema: an admission has more. */
const textOf = (terms: KeptTerms): string =>
  JSON.stringify(termsSchema.parse(terms));

const digestOf = (text: string): string =>
  createHash("sha256").update(text).digest("base64url");

function readKey(text: string): Uint8Array {
  const key = Buffer.from(text, "base64");
  if (key.length === KEPT_KEY_BYTES) return key;
  throw new Error("The key of a kept answer is malformed");
}
