/**
 * The scripts that find keys, admit, renew, settle and record failures. What each
 * takes and returns is described in its file; they use only Redis' clock.
 */
import {
  END_USER_DAYS_KEPT,
  END_USERS_MAX,
} from "@gateway/shared/keys/end_user";
import {
  LAST_USE_DAYS_KEPT,
  LIMITER_EPOCH_MS,
  USAGE_HOURS_KEPT_DAYS,
  USAGE_KINDS,
} from "@gateway/shared/keys/limiter_state";
import { STORE_KEY } from "@gateway/shared/keys/record";
import { defineScript } from "@gateway/shared/redis/link";
import { eagerModule, lazyModule } from "@gateway/shared/redis/lua_modules";
import budgetLua from "./lua/budget.lua" with { type: "text" };
import recordLua from "./lua/record.lua" with { type: "text" };
import admitLua from "./lua/admit.lua" with { type: "text" };
import callLua from "./lua/admit/call.lua" with { type: "text" };
import commitLua from "./lua/admit/commit.lua" with { type: "text" };
import decideLua from "./lua/admit/decide.lua" with { type: "text" };
import moneyLua from "./lua/admit/money.lua" with { type: "text" };
import loadLua from "./lua/admit/load.lua" with { type: "text" };
import endUserLua from "./lua/end_user.lua" with { type: "text" };
import findLua from "./lua/find.lua" with { type: "text" };
import leaseLua from "./lua/lease.lua" with { type: "text" };
import recordFailedLua from "./lua/record_failed.lua" with { type: "text" };
import raiseHoldLua from "./lua/raise_hold.lua" with { type: "text" };
import replyLua from "./lua/admit/reply.lua" with { type: "text" };
import renewLua from "./lua/renew.lua" with { type: "text" };
import spendingLua from "./lua/settle/spending.lua" with { type: "text" };
import settleCallLua from "./lua/settle/call.lua" with { type: "text" };
import holdsLua from "./lua/settle/holds.lua" with { type: "text" };
import settleLua from "./lua/settle.lua" with { type: "text" };
import stateLua from "./lua/state.lua" with { type: "text" };

const DAY_S = 86_400;
const DAY_MS = DAY_S * 1_000;

/**
 * A lease expires this long after it was taken or renewed, which bounds how long a dead
 * edge holds a slot.
 */
export const LEASE_MS = 30_000;
/** An expired lease is kept this long so that its request can still be settled once. */
const DEAD_LEASE_MS = 3_600_000;

/**
 * A video holds its slot for `VIDEO_START_MS`, longer than any request for one takes,
 * until its model server has accepted it; from then on until it is finished, and at
 * most for `VIDEO_JOB_MS`.
 */
const VIDEO_START_MS = 15 * 60_000;
const VIDEO_JOB_MS = DAY_MS;
/** A video that holds no slot any more can still be settled once, for this long. */
const DEAD_VIDEO_MS = 7 * DAY_MS;

/** For how long what requests hold is kept, in leases and beside them. */
const HOLDS_TTL_MS = VIDEO_JOB_MS + DEAD_VIDEO_MS;
/**
 * Leases of edges that cannot reach Redis stay, because what they hold of budgets is
 * counted until they are settled.
 */
const LEASES_TTL_MS = HOLDS_TTL_MS;

/** What `budget.lua` needs. */
const BUDGET_CONSTANTS = {
  DAY_SPEND_TTL_S: USAGE_HOURS_KEPT_DAYS * DAY_S,
  USER_SPEND_TTL_S: END_USER_DAYS_KEPT * DAY_S,
  // The ledger can be checked for more than a year.
  MONTH_SPEND_TTL_S: 400 * DAY_S,
  HOLDS_TTL_MS,
  LOST_HOLD_MS: VIDEO_JOB_MS + DEAD_LEASE_MS,
};

/** What leases hold of budgets, which few keys have. */
const BUDGETS = eagerModule("LEASE", leaseLua) +
  lazyModule("BUDGET", budgetLua);

/** Stands before the scripts that admit and settle, and what it needs. */
const SHARED = BUDGETS + lazyModule("END_USER", endUserLua) +
  eagerModule("STATE", stateLua);
const SHARED_CONSTANTS = {
  ...BUDGET_CONSTANTS,
  END_USERS_MAX,
  END_USER_TTL_MS: END_USER_DAYS_KEPT * DAY_MS,
};

const USAGE_TTL_S = USAGE_HOURS_KEPT_DAYS * DAY_S;

/** Reads whose a key is. */
export const FIND = defineScript("find", findLua, { STORE_KEY });

/** Decides on requests of one key: its rights, and its limits and its owner's. */
export const ADMIT = defineScript(
  "admit",
  [
    SHARED,
    eagerModule("RECORD", recordLua),
    eagerModule("CALL", callLua),
    eagerModule("REPLY", replyLua),
    lazyModule("MONEY", moneyLua),
    eagerModule("LOAD", loadLua),
    eagerModule("DECIDE", decideLua),
    eagerModule("COMMIT", commitLua),
    admitLua,
  ].join(""),
  {
    ...SHARED_CONSTANTS,
    STORE_KEY,
    LIMITER_EPOCH_MS,
    LEASE_MS,
    LEASES_TTL_MS,
    DEAD_LEASE_MS,
    STATE_TTL_MS: LAST_USE_DAYS_KEPT * DAY_MS,
    VIDEO_START_MS,
    DEAD_VIDEO_MS,
    VIDEO_LEASES_TTL_MS: VIDEO_JOB_MS + DEAD_VIDEO_MS,
    // It is not known when one of the running requests will end; videos take minutes.
    CONCURRENCY_WAIT_MS: 1_000,
    VIDEO_WAIT_MS: 10_000,
  },
);

/** Renews the leases of running requests of one key. */
export const RENEW = defineScript("renew", BUDGETS + renewLua, {
  ...BUDGET_CONSTANTS,
  LIMITER_EPOCH_MS,
  LEASE_MS,
  LEASES_TTL_MS,
  DEAD_LEASE_MS,
});

/** Lets a running request hold more of budgets. */
export const RAISE_HOLD = defineScript(
  "raise_hold",
  SHARED + lazyModule("SPENDING", spendingLua) + raiseHoldLua,
  SHARED_CONSTANTS,
);

/** Ends admitted requests of one key, and counts what they used. */
export const SETTLE = defineScript(
  "settle",
  [
    SHARED,
    eagerModule("CALL", settleCallLua),
    lazyModule("SPENDING", spendingLua),
    lazyModule("HOLDS", holdsLua),
    settleLua,
  ].join(""),
  {
    ...SHARED_CONSTANTS,
    LIMITER_EPOCH_MS,
    LEASE_MS,
    LEASES_TTL_MS,
    VIDEO_JOB_MS,
    USAGE_TTL_S,
    REQUESTS: USAGE_KINDS.requests,
    PROMPT_TOKENS: USAGE_KINDS.promptTokens,
    COMPLETION_TOKENS: USAGE_KINDS.completionTokens,
    CACHED_TOKENS: USAGE_KINDS.cachedTokens,
    CACHE_WRITE_TOKENS: USAGE_KINDS.cacheWriteTokens,
    ERRORS: USAGE_KINDS.errors,
    COST: USAGE_KINDS.cost,
    UNPRICED: USAGE_KINDS.unpriced,
    LOST_REQUESTS: USAGE_KINDS.lostRequests,
    LOST_COST: USAGE_KINDS.lostCost,
  },
);

/** Counts requests that were refused or failed, and logs these and slow ones. */
export const RECORD_FAILED = defineScript("record_failed", recordFailedLua, {
  USAGE_TTL_S,
});

/** What an edge loads with its connection to Redis. */
export const EDGE_SCRIPTS = [
  FIND,
  ADMIT,
  RENEW,
  RAISE_HOLD,
  SETTLE,
  RECORD_FAILED,
];
