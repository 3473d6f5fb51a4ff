// Errors for all reasons for which requests are refused or fail.
import assert from "node:assert/strict";
import { isBudgetName } from "@gateway/shared/keys/budget_state";
import {
  END_USER_REASONS,
  FAILURE_REASONS,
  type FailureReason,
} from "@gateway/shared/keys/limiter_state";
import { ApiError } from "@gateway/shared/openai/error";
import type { Failure } from "../../../services/edge-auth/limits/failed_requests.ts";
import {
  isLimitName,
  type KeyRefusal,
  LIMIT_NAMES,
  type LimitName,
  refusalError,
} from "../../../services/edge-auth/limits/refusal.ts";

const limited = (limit: LimitName, holder: "key" | "owner" | "user") =>
  refusalError({
    isAdmitted: false,
    reason: "limited",
    limit,
    holder,
    waitMs: 1,
    rates: { requests: null, tokens: null },
    ...holder === "key" && isBudgetName(limit) && {
      budget: { name: limit, limit: 5, spent: 6, held: 1, resetMs: null },
    },
  });
const refused = (reason: KeyRefusal) =>
  refusalError({ isAdmitted: false, reason });

const USER_LIMITS = [
  "requests",
  "tokens",
  "budget_day",
  "budget_held",
] as const;

/** An error, and the reason under which it is counted. */
export interface Reason {
  error: ApiError;
  reason: FailureReason;
  how?: Failure["how"];
}
/** An error for every reason. */
export const REASONS: Reason[] = [
  ...USER_LIMITS.map((limit, at): Reason => ({
    error: limited(limit, "user"),
    reason: END_USER_REASONS[at] ?? assert.fail(),
  })),
  ...LIMIT_NAMES.filter(isLimitName).flatMap((limit, at): Reason[] => {
    const reason = FAILURE_REASONS[at] ?? assert.fail();
    const owners = FAILURE_REASONS[at + LIMIT_NAMES.length] ??
      assert.fail();
    assert.equal(owners, `${reason}.owner`);
    return [
      { error: limited(limit, "key"), reason },
      { error: limited(limit, "owner"), reason: owners },
    ];
  }),
  { error: refused("expired"), reason: "key_expired" },
  { error: refused("disabled"), reason: "key_disabled" },
  { error: refused("scope"), reason: "endpoint_forbidden" },
  { error: refused("model"), reason: "model_forbidden" },
  { error: refused("address"), reason: "address_forbidden" },
  { error: refused("unpriced"), reason: "model_unpriced" },
  {
    error: new ApiError("rate_limit_exceeded", "No.", {
      reason: "request_bodies",
    }),
    reason: "request_bodies",
  },
  {
    error: new ApiError("key_revoked", "No."),
    reason: "key_disabled",
    how: "cut",
  },
  { error: new ApiError("model_not_found", "No."), reason: "unknown_model" },
  {
    error: new ApiError("upstream_rate_limited", "No."),
    reason: "model_server_limit",
    how: "failed",
  },
  { error: new ApiError("invalid_type", "No."), reason: "invalid_request" },
  {
    error: new ApiError("request_stopped", "No."),
    reason: "request_stopped",
    how: "failed",
  },
  {
    error: new ApiError("request_too_large", "No."),
    reason: "invalid_request",
  },
  {
    error: new ApiError("context_length_exceeded", "No."),
    reason: "invalid_request",
    how: "failed",
  },
  { error: new ApiError("service_unavailable", "No."), reason: "server" },
  { error: new ApiError("overloaded", "No."), reason: "server", how: "failed" },
  {
    error: new ApiError("upstream_truncated", "No."),
    reason: "cut",
    how: "cut",
  },
];
