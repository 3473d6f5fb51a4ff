/** A console with users, keys and usage of all kinds, for its pages to show. */
import type { Page } from "playwright-core";
import {
  FAILURE_REASONS,
  type FailureReason,
  type UsageEndpoint,
} from "@gateway/shared/keys/limiter_state";
import {
  type KeyRecord,
  type Limits,
  type Principal,
  UNLIMITED,
} from "@gateway/shared/keys/record";
import { BudgetDays, TOTAL_WINDOW } from "@gateway/shared/keys/budget_calendar";
import type { RequestRow } from "@gateway/shared/keys/request_row";
import { storedKey, type TestConsole } from "../console_fixture.ts";
import type { KeySettings } from "../domain/keys/settings.ts";
import {
  countUse,
  logRequest,
  useBudgets,
  type UseCounts,
  useLimits,
} from "../usage_fixture.ts";
import { run } from "../web/running_fixture.ts";
import { openWindow, signedIn, type Visit } from "./site_fixture.ts";

/**
 * The users of the console, each with a page in a window of their own, and its data.
 */
export interface Stage {
  site: TestConsole;
  /** The page of the owner of the keys. */
  owner: Page;
  ownerId: string;
  /** A key with limits, usage and failed requests. */
  key: KeyRecord;
  /** A key for some models, which was never used. */
  limited: KeyRecord;
  /** The page of an owner without keys. */
  newcomer: Page;
  /** A page that is signed out. */
  stranger: Page;
  operator: Page;
  /** The id of a project of the owner and others. */
  projectId: string;
}

/** The address of the owner. */
export const EMAIL = "ada.lovelace@example.org";
/** The address of the operator. */
export const OPERATOR_EMAIL = "op@example.org";
const LONG_EMAIL = "someone.with.a.long.name@department.example.org";
const LONG_DESCRIPTION =
  "Nightly summaries of long meetings and all that was said in them";
const OTHER_DEVICE = {
  ip: "192.0.2.7",
  userAgent: "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) Safari/605.1",
};
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
/** Billionths of a dollar. */
const DOLLAR = 1_000_000_000;
const KEY_LIMITS: Limits = {
  ...UNLIMITED,
  budgetDay: 25 * DOLLAR,
  budgetMonth: 500 * DOLLAR,
  budgetTotal: 1_000 * DOLLAR,
  requestsPerMinute: 60,
  tokensPerMinute: 60_000,
  concurrency: 4,
  imagesPerDay: 250,
  videoJobs: 2,
  queueWeight: 50,
};
const OWNER_LIMITS: Limits = {
  ...UNLIMITED,
  budgetMonth: 2_000 * DOLLAR,
  requestsPerMinute: 50,
  tokensPerMinute: 200_000,
  tokensPerDay: 5_000_000,
  queueWeight: 200,
};

/** Fills the console with owners, keys and usage. */
export async function setStage(visit: Visit): Promise<Stage> {
  const { site } = visit;
  const { page: owner, ownerId } = await signedIn(visit, EMAIL);
  const newcomer = await signedIn(visit, "grace@example.org");
  const operator = await signedIn(visit, OPERATOR_EMAIL);
  const { owners, sessions } = site.deps;
  await owners.giveRole(operator.ownerId);
  await owners.ensure(LONG_EMAIL);
  const { page: stranger } = await openWindow(visit);
  await sessions.start(ownerId, OTHER_DEVICE);
  const key = await makeKeys(site, ownerId);
  await fillLimits(site, ownerId, key.id);
  await countDay(site, { ownerId, keyId: key.id });
  await logFailures(site, { ownerId, keyId: key.id });
  runAll(site, { ownerId, keyId: key.id });
  const limited = await storedKey(site, ownerId, {
    description: "Translations",
    models: ["old-model-2", "small-1", "qwen/qwen3-235b-a22b-instruct"],
  });
  const projectId = await makeProject(site, ownerId);
  return {
    site,
    projectId,
    owner,
    ownerId,
    key,
    limited,
    newcomer: newcomer.page,
    stranger,
    operator: operator.page,
  };
}

/** Makes a project with members, keys and usage. */
async function makeProject(
  site: TestConsole,
  adminId: string,
): Promise<string> {
  const { projects, owners } = site.deps;
  const actor = { by: EMAIL, ip: "", ownerId: adminId, as: "member" } as const;
  const name = "Search and recommendations of the shop, all countries";
  const { id } = await projects.create(actor, { name, adminId });
  const memberId = await owners.ensure(LONG_EMAIL);
  await projects.addOwner(actor, id, { memberId, role: "member" });
  await projects.create(actor, { name: "数据分析", adminId });
  const indexer = { description: "Indexer", createdBy: adminId };
  const key = await storedKey(site, id, indexer);
  const crawler = { description: "Crawler", createdBy: memberId };
  await storedKey(site, id, crawler);
  await countDay(site, { ownerId: id, keyId: key.id });
  return id;
}

/** Makes keys in all states. Returns one with limits. */
async function makeKeys(
  site: TestConsole,
  ownerId: string,
): Promise<KeyRecord> {
  const make = (description: string, settings: Partial<KeySettings> = {}) =>
    storedKey(site, ownerId, { description, ...settings });
  const key = await make("Support assistant, production", {
    models: ["neutral-3.7-plus"],
    limits: KEY_LIMITS,
    priority: "batch",
    keepSeconds: 600,
  });
  await make(LONG_DESCRIPTION, { expiresAtMs: Date.now() + DAY_MS });
  const disabled = await make("Staging");
  const rotated = await make("数据分析服务 🔑");
  const actor = { by: EMAIL, ip: OTHER_DEVICE.ip };
  const target = { ownerId, version: null, actor };
  const { keys } = site.deps;
  await keys.disable({ ...target, keyId: disabled.id });
  await keys.rotate({ ...target, keyId: rotated.id }, DAY_MS);
  return key;
}

/** Uses some of the limits of the key, and of its owner. */
async function fillLimits(
  site: TestConsole,
  ownerId: string,
  keyId: string,
): Promise<void> {
  await site.deps.owners.change(ownerId, { limits: OWNER_LIMITS });
  const use = {
    requestsAheadMs: 20_000,
    dayTokens: 4_812_345,
    running: 1,
    images: 210,
  };
  await useLimits(site, { ownerId, keyId }, { ...use, tokensAheadMs: 72_000 });
  const owner = { ownerId, keyId: null };
  await useLimits(site, owner, { ...use, tokensAheadMs: 25_000 });
  const { day, month } = new BudgetDays("UTC").at(Date.now());
  await useBudgets(site, { ownerId, keyId }, {
    [day.name]: { spent: 7_500_000_000, held: 17_250_000_000 },
    [month.name]: { spent: 500_120_000_000 },
    [TOTAL_WINDOW]: { spent: 712_345_678_000, held: 17_250_000_000 },
  });
  await useBudgets(site, owner, {
    [month.name]: { spent: 1_812_500_000_000, held: 17_250_000_000 },
  });
}

/** Counts usage of all kinds in every other hour of the last day. */
async function countDay(site: TestConsole, key: Principal): Promise<void> {
  for (let hoursAgo = 22; hoursAgo >= 0; hoursAgo -= 2) {
    const atMs = Date.now() - hoursAgo * HOUR_MS;
    for (const [model, counts] of Object.entries(useOfHour(hoursAgo))) {
      const endpoint = endpointOf(model, hoursAgo);
      await countUse(site, key, { atMs, model, endpoint, counts });
    }
  }
}

/** The endpoints of models of other kinds. */
const ENDPOINTS: { readonly [model: string]: UsageEndpoint } = {
  "simulated-image-1": "images",
  "simulated-speech-1": "speech",
  "simulated-transcription-1": "transcriptions",
  "simulated-video-1": "videos",
};

/** Where the requests of an hour were sent: those of agents in every other one. */
const endpointOf = (model: string, hoursAgo: number): UsageEndpoint =>
  ENDPOINTS[model] ?? (hoursAgo % 4 === 0 ? "messages" : "chat");

/** What was used in an hour, by model. */
function useOfHour(hoursAgo: number): Record<string, UseCounts> {
  const requests = Math.round(60 * (1 + Math.sin(hoursAgo / 4)));
  const errors = Math.round(requests / 30);
  return {
    "neutral-3.7-plus": {
      requests,
      errors,
      cut: errors,
      promptTokens: requests * 812,
      completionTokens: requests * 344,
      cost: requests * 5_470_000,
      lostRequests: 1,
      lostCost: 5_470_000,
    },
    "qwen/qwen3-235b-a22b-instruct": {
      requests: hoursAgo,
      promptTokens: 90 * hoursAgo,
      completionTokens: hoursAgo,
      unpriced: hoursAgo,
      refused: 4,
      requests_per_minute: 1,
      "tokens_per_day.owner": 3,
    },
    "simulated-image-1": {
      requests,
      images: requests,
      cost: requests * 40_000_000,
    },
    "simulated-speech-1": {
      requests,
      characters: 800 * hoursAgo,
      cost: hoursAgo * 12_000_000,
    },
    "simulated-transcription-1": {
      requests,
      audioSeconds: 30 * hoursAgo,
      cost: hoursAgo * 3_000_000,
    },
    "simulated-video-1": {
      requests,
      videoSeconds: 4 * hoursAgo,
      cost: hoursAgo * 400_000_000,
    },
    "": { refused: 2, unknown_model: 2 },
  };
}

/** What differs between failed requests for these reasons. */
const FAILURE_DETAILS: Partial<Record<FailureReason, Partial<RequestRow>>> = {
  budget_month: {
    code: "insufficient_quota",
    budget: "budget_month 500000000000 500120000000 0 1798761600000",
  },
  budget_held: {
    budget: "budget_day 25000000000 7500000000 17500000000 1798761600000",
  },
  unknown_model: { model: "gpt-4o", status: 404, code: "model_not_found" },
  invalid_request: {
    status: 400,
    code: "invalid_type",
    param: "messages[0].content",
    more: 1_234,
  },
  server: {
    outcome: "failed",
    status: 502,
    code: "upstream_error",
    durationMs: 61_200,
    backend: "gpu-rack-2-with-a-long-name",
    attempts: 2,
  },
  cut: { outcome: "cut", status: 200, firstByteMs: 840, durationMs: 12_000 },
};

/** Lets requests run in every state. */
function runAll(site: TestConsole, key: Principal): void {
  const hour = { ageMs: HOUR_MS, tokens: 128_400 };
  const backend = "gpu-rack-2-with-a-long-name";
  run(site, key, { ...hour, state: "streaming", backend });
  const model = "qwen/qwen3-235b-a22b-instruct";
  run(site, key, { model, backend: "openai-1" });
  run(site, key, { state: "waiting", workerId: null, ageMs: 900 });
}

/** Logs a request that failed for every reason, and a slow one. */
async function logFailures(site: TestConsole, key: Principal): Promise<void> {
  const nowMs = Date.now();
  for (const [n, reason] of FAILURE_REASONS.toReversed().entries()) {
    const timeMs = nowMs - (FAILURE_REASONS.length - n) * 7 * MINUTE_MS;
    const details = FAILURE_DETAILS[reason];
    const written = { timeMs, writtenMs: timeMs };
    await logRequest(site, key, { ...written, reason, ...details });
  }
  await logRequest(site, key, {
    timeMs: nowMs,
    writtenMs: nowMs,
    outcome: "slow",
    status: 200,
    code: "",
    reason: "",
    firstByteMs: 42_000,
    durationMs: 51_300,
    backend: "openai-1",
    attempts: 1,
  });
}
