/**
 * The record of an API key, and its layout in Redis. All keys of one owner
 * share the hash tag `{owner}`, so that one script call can check a key and its
 * owner together. The owner is an account: of one person, or a project with several
 * members, whose id is then the hash tag. The full value of an API key is never stored.
 *
 * | key | type | content |
 * | --- | --- | --- |
 * | `hash:<sha256 base64url>` | string | `<key id>:<owner id>` |
 * | `deleted:<sha256 base64url>` | string | the same of a key that was deleted, for a
 * while, so that requests with it are in the log of its account |
 * | `key:{owner}:<key id>` | hash | {@link KeyRecord}, see {@link KEY_FIELDS} |
 * | `key:{owner}:<key id>:stop` | hash | exists after an order to stop the running
 * requests of a key, until it is enabled again, for a day |
 * | `keys:{owner}` | zset | key ids by creation time in ms, except of the page "Try it"
 * |
 * | `own:{owner}` | hash | the owner's state, limits and version, fields as in a key
 * record |
 * | `lim:{owner}:<key id>`, `lim:{owner}` | hash | limiter state of key and of owner,
 * see `limiter_state.ts` |
 * | `lease:{owner}:<key id>`, `lease:{owner}` | zset | running requests by lease expiry
 * |
 * | `lease:{owner}:<key id>:video`, `lease:{owner}:video` | zset | the same of videos
 * that are being made |
 * | `use:{owner}:<key id>:<yyyymmdd>`, `use:{owner}:<yyyymmdd>` | hash | counters per
 * hour of the UTC day and model, of key and of owner, see `limiter_state.ts` |
 * | `spend:{owner}:<key id>:<window>`, `spend:{owner}:<window>` | hash | what is spent
 * and held of a budget, see `lua/budget.lua` of the edge; a window is `d20261128`,
 * `m202611` or `total`, see `budget_calendar.ts` |
 * | `hold:{owner}:<key id>` | hash | what is held of budgets beside leases |
 * | `lim:{owner}:<key id>:<end user>`, `spend:{owner}:<key id>:<end user>:<window>` |
 * hash | the same of an end user of a key, whose id is a digest |
 * | `users:{owner}:<key id>` | zset | the end users of a key, by their last admission,
 * see `end_user.ts` |
 * | `requests:{owner}` | stream | the request log: what was refused, failed or slow,
 * see `request_row.ts` |
 * | `logged:accounts` | zset | owner ids with a request log, by its last row in ms |
 * | `job:{owner}:<video id>` | hash | `status`, and `job`: the video as JSON, without
 * its prompt, see `videos/jobs.ts` of the edge |
 * | `jobs:{owner}` | zset | ids of videos by creation time in ms |
 * | `jobs:due` | zset | `<owner id>:<video id>` of those that have not ended, by the
 * time in ms at which an edge looks after them |
 * | `kept:{owner}:<request id>` | hash | the record of a kept answer: its state, the
 * key to it, how it is read, what it costs, see `kept/records.ts` of the edge |
 * | `kept:{owner}` | zset | request ids of kept answers, by the time in ms at which
 * they expire |
 * | `kept:{owner}:bytes` | hash | how many bytes each of them has, and `all` together |
 * | `kept:{owner}:once:<key id>:<digest>` | string | the request id that an idempotency
 * key has got |
 * | `kept:due` | zset | `<owner id>:<request id>` of kept answers, by the time in ms at
 * which an edge looks after them |
 * | `lease:keys` | zset | `<owner id>:<key id>` of keys that may have leases, by the
 * time in ms at which an edge noted it |
 * | `lengths:<yyyymmdd>` | hash | answers without a bound on a UTC day, by the step of
 * their length and model, see `answer_lengths.ts` of the edge |
 * | `notices:due` | set | budgets that have reached a threshold, as edges write it (see
 * `lua/budget.lua`), until key-admin has noted it |
 * | `sweep:leases` | string | an edge charges expired leases, or did so a minute ago |
 * | `audit:{owner}` | stream | who did what to which key, when, from where |
 * | `store` | string | the random name of this set of data, see {@link STORE_KEY} |
 */

import type { EndUsers } from "./end_user.ts";

/** A deleted key has no record, so there is no third state. */
export type KeyState = "enabled" | "disabled";

/** How the requests of a key wait: `batch` behind all others of its account. */
export const KEY_PRIORITIES = ["normal", "batch"] as const;
/** A member of {@link KEY_PRIORITIES}. */
export type KeyPriority = typeof KEY_PRIORITIES[number];

/** What keys may be used for: groups of endpoints. */
export const KEY_SCOPES = [
  "chat",
  "models",
  "image",
  "video",
  "speech",
  "embedding",
] as const;
/** A member of {@link KEY_SCOPES}. */
export type KeyScope = typeof KEY_SCOPES[number];

/** Limits of a key or of an owner, budgets included. 0 means no limit. */
export type Limits = typeof UNLIMITED;

/** The limits of a key or an owner that has none. */
export const UNLIMITED = {
  requestsPerMinute: 0,
  tokensPerMinute: 0,
  tokensPerDay: 0,
  concurrency: 0,
  imagesPerDay: 0,
  /** Characters of text that is spoken. */
  charactersPerDay: 0,
  /** Seconds of recordings that are transcribed. */
  audioSecondsPerDay: 0,
  videoSecondsPerDay: 0,
  videoJobs: 0,
  /**
   * Not a limit: the share that it gets beside others while requests wait, in percent
   * of the usual one; for a key, beside the other keys of its account.
   */
  queueWeight: 0,
  /** In billionths of the currency, as the next two: what may be spent on a day, */
  budgetDay: 0,
  /** in a calendar month, */
  budgetMonth: 0,
  /** and altogether: what was paid in advance. */
  budgetTotal: 0,
};

/** Id and hint of a key, which still name it when it has been deleted. */
export type KeyName = readonly [id: string, hint: string];

/** An API key without its full value. */
export interface KeyRecord {
  /** `key_` and 20 base62 characters. */
  id: string;
  /** The account: `own_`, or `prj_` for a project, and 20 base62 characters. */
  ownerId: string;
  state: KeyState;
  description: string;
  /** First five and last four characters: `sk-Cg…x4Zq`. */
  hint: string;
  /** SHA-256 of the full value, base64url. */
  hash: string;
  scopes: readonly KeyScope[];
  /** Model ids the key may use; if empty, all. */
  models: readonly string[];
  /** Networks from which it may be used, see `networks.ts`; if empty, from anywhere. */
  networks: readonly string[];
  limits: Limits;
  /** What each of its end users may use; null: they are not told apart. */
  endUsers: EndUsers | null;
  priority: KeyPriority;
  /**
   * For how long its answers are kept after their end, where a request does not say it;
   * 0: they are not.
   */
  keepSeconds: number;
  createdAtMs: number;
  expiresAtMs: number | null;
  /**
   * The id of the owner who created it, or its predecessor in a rotation; null: an
   * earlier version or the command line did.
   */
  createdBy: string | null;
  /** The other key of a rotation: the old one, and the new one. */
  replaces: KeyName | null;
  replacedBy: KeyName | null;
  /** Incremented by each change, from 1. A change states the version it is based on. */
  version: number;
}

/**
 * Field names of `key:{owner}:<key id>`; `own:{owner}` has the state, the limits and a
 * version. Numbers are decimal text, lists are joined by commas, null is 0.
 */
export const KEY_FIELDS = {
  state: "state",
  description: "description",
  hint: "hint",
  hash: "hash",
  scopes: "scopes",
  models: "models",
  networks: "networks",
  endUsers: "end_user",
  priority: "priority",
  keepSeconds: "keep_seconds",
  createdAtMs: "created_at",
  expiresAtMs: "expires_at",
  createdBy: "created_by",
  replaces: "replaces",
  replacedBy: "replaced_by",
  version: "version",
  requestsPerMinute: "rpm",
  tokensPerMinute: "tpm",
  tokensPerDay: "tpd",
  concurrency: "conc",
  imagesPerDay: "images_per_day",
  charactersPerDay: "characters_per_day",
  audioSecondsPerDay: "audio_seconds_per_day",
  videoSecondsPerDay: "video_seconds_per_day",
  videoJobs: "video_jobs",
  queueWeight: "queue_weight",
  budgetDay: "budget_day",
  budgetMonth: "budget_month",
  budgetTotal: "budget_total",
} as const;

/** The key and owner of a request. This pair never changes while the key exists. */
export interface Principal {
  keyId: string;
  ownerId: string;
}

/**
 * Written with the first API key, and never deleted: without it, Redis has lost its
 * data or never had any.
 */
export const STORE_KEY = "store";
/** The keys that may have leases: `<owner id>:<key id>`, by when an edge noted them. */
export const LEASE_KEYS_KEY = "lease:keys";
/** How long the answers of models were on a UTC day: counts by length and model. */
export const answerLengthsKey = (day: string): string => `lengths:${day}`;
/** Claimed by the edge that charges requests of lost edges. */
export const SWEEP_KEY = "sweep:leases";
/** Budgets that have reached a threshold, which key-admin has not noted yet. */
export const DUE_NOTICES_KEY = "notices:due";
/** The accounts that have a request log, by the time of its last row. */
export const REQUEST_LOGS_KEY = "logged:accounts";
/** The index of videos that an edge has to look after. */
export const DUE_JOBS_KEY = "jobs:due";

const ofKey = (kind: string) => ({ ownerId, keyId }: Principal): string =>
  `${kind}:{${ownerId}}:${keyId}`;
const ofOwner = (kind: string) => (ownerId: string): string =>
  `${kind}:{${ownerId}}`;
/** Where the ids of a key and its owner are; `sha256` is base64url. */
export const hashKey = (sha256: string): string => `hash:${sha256}`;
/** Where those of a deleted key are. */
export const deletedKey = (sha256: string): string => `deleted:${sha256}`;
/** The hash with state, settings and limits of an API key. */
export const recordKey = ofKey("key");
/** The order to stop the running requests of a key. */
export const stopKey = (p: Principal): string => `${recordKey(p)}:stop`;
/** The index of the keys of an owner. */
export const keysKey = ofOwner("keys");
/** The hash with the state and the limits of an owner. */
export const ownerLimitsKey = ofOwner("own");
/** What a key has used of its limits. */
export const limiterKey = ofKey("lim");
/** What an owner has used of its limits. */
export const ownerLimiterKey = ofOwner("lim");
/** The running requests of a key. */
export const leaseKey = ofKey("lease");
/** The running requests of all keys of an owner. */
export const ownerLeaseKey = ofOwner("lease");
/** The videos of a key that are being made. */
export const videoLeaseKey = (p: Principal): string => `${leaseKey(p)}:video`;
/** The videos of all keys of an owner that are being made. */
export const ownerVideoLeaseKey = (ownerId: string): string =>
  `${ownerLeaseKey(ownerId)}:video`;
/** The audit log of an owner. */
export const auditKey = ofOwner("audit");
/** A video; `id` is `video_` and 32 hex digits. */
export const jobKey = (ownerId: string, id: string): string =>
  `job:{${ownerId}}:${id}`;
/** The index of the videos of an owner. */
export const jobsKey = ofOwner("jobs");
/** The kept answers of an owner, by when they expire. */
export const keptAnswersKey = ofOwner("kept");
/** How many bytes each of them has, and all together. */
export const keptBytesKey = (ownerId: string): string =>
  `${keptAnswersKey(ownerId)}:bytes`;
/** The record of a kept answer; `id` is a request id, or empty: how all begin. */
export const keptAnswerKey = (ownerId: string, id: string): string =>
  `${keptAnswersKey(ownerId)}:${id}`;
/** Which answer an idempotency key, of which this is a digest, has got. */
export const idempotencyKey = (p: Principal, digest: string): string =>
  `${keptAnswersKey(p.ownerId)}:once:${p.keyId}:${digest}`;
/** The kept answers that an edge has to look after. */
export const DUE_ANSWERS_KEY = "kept:due";
/** The usage of a key on a day, `yyyymmdd` in UTC. */
export const usageKey = (p: Principal, day: string): string =>
  `use:{${p.ownerId}}:${p.keyId}:${day}`;
/** What a key has spent of a budget in one of its windows. */
export const spendKey = (p: Principal, window: string): string =>
  `spend:{${p.ownerId}}:${p.keyId}:${window}`;
/** What all keys of an owner have spent of a budget in one of its windows. */
export const ownerSpendKey = (ownerId: string, window: string): string =>
  `spend:{${ownerId}}:${window}`;
/** What running requests of a key hold of budgets, where their leases do not say it. */
export const holdKey = ofKey("hold");
/** The request log of an owner. */
export const requestLogKey = ofOwner("requests");
/** All keys of the owner together, including those deleted since. */
export const ownerUsageKey = (ownerId: string, day: string): string =>
  `use:{${ownerId}}:${day}`;
