/** Requests that a test has admitted, and what they cost at their end. */
import assert from "node:assert/strict";
import type { Principal } from "@gateway/shared/keys/record";
import type { Cost } from "../../../services/edge-auth/limits/cost.ts";
import type {
  Ask,
  Grant,
  Limiter,
} from "../../../services/edge-auth/limits/limiter.ts";

/** Admits a request of a key, which asks for something else by its last argument. */
export type Admit = (
  edge: Pick<Limiter, "admit">,
  key: Principal,
  more?: Partial<Ask>,
) => Promise<Grant>;

/** Returns what admits requests that ask for the same, and fails if one is refused. */
export const admitterOf = (ask: Ask): Admit => async (edge, key, more = {}) => {
  const decision = await edge.admit(key, { ...ask, ...more });
  assert.ok(decision.isAdmitted, JSON.stringify(decision));
  return decision;
};

/** The cost of a request that has ended, in billionths. */
export const costOfNanos = (nanos: number): Cost => ({
  promptTokens: 0,
  completionTokens: 0,
  nanos,
  kind: "complete",
});
