import type { KeyScope } from "@gateway/shared/keys/record";
import type {
  AdmitReply,
  LimitName,
  LimitOwner,
  Rates,
  ReservationTerms,
} from "./admit_reply.ts";
import type { Lease } from "./lease_keeper.ts";

/** What a request asks for. */
export interface Ask {
  scope: KeyScope;
  /** A model id of the catalog, or null where none is involved. */
  model: string | null;
  /** Tokens to reserve, see `token_estimate.ts`. 0: token limits do not apply. */
  wantTokens: number;
  /** For the log. */
  requestId: string;
}

/** The request may run. Has to be settled exactly when it has ended, however it ended. */
export interface Admitted extends Lease {
  readonly isAdmitted: true;
  readonly requestId: string;
  readonly reservedTokens: number;
  /** Where the limits stand with this request counted. */
  readonly rates: Rates;
  readonly terms: ReservationTerms;
  /** Key or owner may run only so many at once: others wait for this one's slot in Redis. */
  readonly isSlotLimited: boolean;
}

/** The request may not run. Nothing was consumed. */
export type Refused =
  & { readonly isAdmitted: false }
  & (
    /** No such key, as far as anybody outside may know. */
    | { reason: "unknown" | "expired" | "disabled" }
    /** The key has no right to the endpoint (scope) or to the model. */
    | { reason: "forbidden"; what: "scope" | "model" }
    | {
      reason: "limited";
      limit: LimitName;
      of: LimitOwner;
      /** After this long, the same request passes unless others come first. */
      waitMs: number;
      rates: Rates;
    }
  );

/** How a request ended. */
export interface Outcome {
  /** Null: the backend did not say. What was reserved then stays charged. */
  promptTokens: number | null;
  completionTokens: number | null;
  /** `failed` counts as an error; a client that left is `cancelled`, not an error. */
  outcome: "completed" | "failed" | "cancelled";
}

/** A refusal in the words of the script. */
export type Refusal = Exclude<AdmitReply, { status: "ok" | "empty" }>;

/** The same in the words of the edge. */
export function refusedBy(refusal: Refusal): Refused {
  switch (refusal.status) {
    case "limited": {
      const { limit, of, waitMs, rates } = refusal;
      return { isAdmitted: false, reason: "limited", limit, of, waitMs, rates };
    }
    case "scope":
    case "model":
      return { isAdmitted: false, reason: "forbidden", what: refusal.status };
    default:
      return { isAdmitted: false, reason: refusal.status };
  }
}
