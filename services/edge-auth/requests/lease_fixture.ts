/** Leases of requests that reserve nothing. */
import type { Principal } from "@gateway/shared/keys/record";
import type { RunLease } from "../limits/admission.ts";

/** A lease of this principal; by default, nobody hears how it ends. */
export function leaseOf(
  principal: Principal,
  { model = null, settle = () => null, undo = () => {} }:
    & Partial<Pick<RunLease, "settle" | "undo">>
    & { model?: string | null } = {},
): RunLease {
  return {
    headers: {},
    reservation: {
      id: "l1",
      principal,
      model,
      atMs: 0,
      reservedTokens: 0,
      reservedUnits: null,
    },
    settle,
    undo,
  };
}
