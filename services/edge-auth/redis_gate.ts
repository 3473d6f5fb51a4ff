/** The gate of production: keys and limits in Redis. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Principal } from "@gateway/shared/keys/record";
import { lateKey } from "@gateway/shared/keys/limiter_state";
import { publicRequestId } from "@gateway/shared/process/ids";
import { KEY_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { RedisScript } from "@gateway/shared/redis/script";
import {
  type Admission,
  ADMISSION_SCRIPTS,
  type Admitted,
  type Ask,
  createAdmission,
  type Refused,
} from "./admission.ts";
import { refusedBy } from "./admitted.ts";
import { chargeOf, outcomeOf } from "./charge.ts";
import { FIND } from "./find.lua.ts";
import type { Gate, Ticket } from "./gate.ts";
import { INSPECT } from "./inspect.lua.ts";
import { inspectKey } from "./inspect_key.ts";
import { createPrincipalLookup } from "./principal_lookup.ts";
import { rateLimitHeaders } from "./rate_limit_headers.ts";
import { keysUnreachable, refusalError, storeIsEmpty } from "./refusal.ts";
import { createStoreWatch } from "./store_watch.ts";
import { estimateTokens, type TokenEstimate } from "./token_estimate.ts";

export interface RedisGateOptions {
  redis: RedisLink;
  catalog: Catalog;
  now: MonotonicNow;
  random: () => number;
  log: Log;
  /** For metrics. Must not throw. */
  onDecision?: (decision: GateDecision) => void;
}

/** What admission said to one chat request. */
export interface GateDecision {
  /** `unavailable`: Redis could not answer. `failed`: a fault of ours, such as a corrupt record. */
  result: Admitted | Refused | "unavailable" | "failed";
  durationMs: number;
}

/** A gate with a life of its own: it renews leases, delivers settlements, and watches the store. */
export interface RedisGate extends Gate {
  /** Requests that hold a slot of their key. */
  readonly held: number;
  /** Settlements not yet known to have reached Redis. */
  readonly unsettled: number;
  start(): void;
  /** Delivers what is not settled yet. Returns how many could not be delivered. */
  stop(timeoutMs: number): Promise<number>;
}

/** What a gate's link must know: give it to `createRedisLink`. */
export const GATE_SCRIPTS: readonly RedisScript[] = [
  ...ADMISSION_SCRIPTS,
  FIND,
  INSPECT,
];

/** The same: a write that the edge's user may make, and that nobody reads. */
export const GATE_PROBE: readonly string[] = [
  "SET",
  lateKey("probe", "probe"),
  "1",
  "PX",
  "1000",
];

export function createGate(options: RedisGateOptions): RedisGate {
  const { redis, now, random, log, catalog } = options;
  const admission = createAdmission(options);
  const lookup = createPrincipalLookup({
    redis,
    now,
    entriesMax: KEY_LIMITS.lookupEntriesMax,
    unknownEntriesMax: KEY_LIMITS.unknownEntriesMax,
    unknownMs: KEY_LIMITS.unknownMs,
    onStore: (name) => store.saw(name),
  });
  const store = createStoreWatch({
    redis,
    log,
    onChanged: () => lookup.forgetUnknown(),
  });
  return {
    get held() {
      return admission.running;
    },
    get unsettled() {
      return admission.unsettled;
    },
    start() {
      admission.start();
      store.start();
    },
    stop(timeoutMs) {
      store.stop();
      return admission.stop(timeoutMs);
    },
    lookup,
    async check(principal, scope) {
      const reply = await inspectKey(redis, principal, scope);
      if (reply.status === "ok") return reply.models;
      if (reply.status === "empty") throw keysUnreachable(storeIsEmpty());
      if (reply.status === "unknown") lookup.forget(principal);
      throw refusalError(refusedBy(reply), random);
    },
    async admitChat(principal, request, requestId) {
      const estimate = estimateFor(request, catalog);
      const decision = await decide(admission, options, principal, {
        scope: "chat",
        model: request.model,
        wantTokens: estimate.totalTokens,
        requestId,
      });
      if (!decision.isAdmitted) {
        if (decision.reason === "unknown") lookup.forget(principal);
        throw refusalError(decision, random);
      }
      return ticketOf(admission, decision, estimate, log);
    },
  };
}

async function decide(
  admission: Admission,
  { now, onDecision }: RedisGateOptions,
  principal: Principal,
  ask: Ask,
): Promise<Admitted | Refused> {
  const startedAtMs = now();
  let result: GateDecision["result"] = "failed";
  try {
    result = await admission.admit(principal, ask);
    return result;
  } catch (error) {
    if (error instanceof ApiError) result = "unavailable";
    throw error;
  } finally {
    onDecision?.({ result, durationMs: now() - startedAtMs });
  }
}

function estimateFor(request: ChatRequest, catalog: Catalog): TokenEstimate {
  const outputTokensMax = catalog.get(request.model)?.outputTokensMax;
  return estimateTokens(
    request,
    outputTokensMax === undefined ? {} : { outputTokensMax },
  );
}

function ticketOf(
  admission: Admission,
  admitted: Admitted,
  estimate: TokenEstimate,
  log: Log,
): Ticket {
  const freed = admitted.isSlotLimited ? Promise.withResolvers<void>() : null;
  return {
    slotFreed: freed?.promise ?? null,
    setHeaders(headers) {
      for (
        const [name, value] of Object.entries(rateLimitHeaders(admitted.rates))
      ) {
        headers.set(name, value);
      }
    },
    settle(settlement) {
      const charge = chargeOf(settlement);
      const isComplete = settlement.kind === "complete";
      if (charge === "reservation" || (isComplete && charge !== "usage")) {
        const requestId = publicRequestId(admitted.requestId);
        log.warn("usage_missing", { requestId, charge });
      }
      admission.settle(
        admitted,
        outcomeOf(settlement, charge, estimate),
        freed?.resolve,
      );
    },
  };
}
