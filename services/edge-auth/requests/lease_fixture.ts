/** Leases of requests that reserve nothing. */
import type { Principal } from "@gateway/shared/keys/record";
import type { RunLease } from "../limits/admission.ts";

/** The model of a lease, and who hears how it ends; by default nobody. */
interface LeaseParts extends Partial<Pick<RunLease, "settle" | "undo">> {
  model?: string | null;
}

/** A lease of this principal. */
export function leaseOf(
  principal: Principal,
  parts: LeaseParts = {},
): RunLease {
  const { model = null, settle = () => null, undo = () => {} } = parts;
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
