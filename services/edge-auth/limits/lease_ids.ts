/** The ids of leases, which say what their requests reserve. */
import {
  HOUR_MS,
  usageDay,
  type UsageEndpoint,
  usageHour,
  usageSuffix,
} from "@gateway/shared/keys/limiter_state";
import { newRequestId } from "@gateway/shared/process/ids";
import type { Units } from "./cost.ts";
import { leaseId, nanosReserved, type Rate } from "./rate.ts";

/** What a lease is to say of its request. */
export interface LeaseAsk {
  /** A model id of the catalog, or null where none is involved. */
  model: string | null;
  /** The endpoint by which usage is counted. */
  endpoint?: UsageEndpoint | null;
  /** Tokens to reserve, see `cost.ts`. 0: token limits do not apply. */
  wantTokens: number;
  /** How many of these tokens the prompt has. Default: all. */
  promptTokens?: number;
  wantUnits?: Units | null;
  /** The prices of the model; absent: none are in force. */
  rate?: Rate | null;
}

/** Makes the ids of the leases of an edge. */
export class LeaseIds {
  /** Random, so that the ids of different processes never collide. */
  readonly #prefix = newRequestId();
  #count = 0;
  /** The hour of the last lease. */
  #hour = { number: NaN, text: "" };

  /**
   * The id of a new lease, which says what its request reserves, for which end user it
   * is (empty: the key does not tell them apart), and in which hour: `atMs` is what
   * Redis' clock is expected to show, in Unix ms.
   */
  next(
    { model, endpoint, wantTokens, promptTokens, wantUnits, rate = null }:
      LeaseAsk,
    { endUser, atMs }: { endUser: string; atMs: number },
  ): string {
    const count = this.#count;
    this.#count += 1;
    // A video is settled at its end, whatever becomes of this edge.
    const units = wantUnits?.unit === "videoSeconds" ? null : wantUnits ?? null;
    const prompt = promptTokens ?? wantTokens;
    const size = { promptTokens: prompt, totalTokens: wantTokens, units };
    const name = `${this.#prefix}.${count.toString(36)}`;
    return leaseId(endUser === "" ? name : `${name}.${endUser}`, {
      hour: this.#hourOf(atMs),
      promptTokens: prompt,
      completionTokens: wantTokens - prompt,
      unit: units?.unit ?? null,
      count: units?.count ?? 0,
      nanos: units === wantUnits || !wantUnits ? nanosReserved(size, rate) : 0,
      isUnpriced: rate !== null && rate.prices === null,
      suffix: usageSuffix({ model: model ?? "", endpoint }),
    });
  }

  /** The hour of a time as leases have it: `2026112809`. */
  #hourOf(timeMs: number): string {
    const number = Math.floor(timeMs / HOUR_MS);
    if (number !== this.#hour.number) {
      const text = usageDay(timeMs) + usageHour(timeMs);
      this.#hour = { number, text };
    }
    return this.#hour.text;
  }
}
