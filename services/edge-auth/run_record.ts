/** What is known of a run and told at its end, once. */
import type { CancelReason } from "@gateway/shared/bus/control";
import type { RejectReason } from "@gateway/shared/bus/frame_payload";
import type { MonotonicNow } from "@gateway/shared/clock";
import type { Usage } from "@gateway/shared/openai/chat";
import type { ApiError } from "@gateway/shared/openai/error";

/** How a run ended, for the settlement of limits, the log and the metrics. */
export interface RunOutcome {
  kind: "complete" | "failed" | "cancelled";
  /** What the backend counted; null when it did not get that far. */
  usage: Usage | null;
  /** Completion tokens known to have been produced. */
  completionTokens: number;
  /** The worker had the last word; else it may have made more than is known. */
  isHeard: boolean;
  error: ApiError | null;
  workerId: string | null;
  /** Job messages sent. */
  offers: number;
  /** From the start of the run to a worker's acceptance; null when none accepted. */
  dispatchMs: number | null;
  /** From the start of the run to the first bytes of the answer. */
  firstByteMs: number | null;
  /** From the start of the run to its end. */
  durationMs: number;
  /** Attempts that were lost and made again elsewhere. */
  repeats: number;
  /** Why workers did not take it. */
  rejects: readonly RejectReason[];
  /** How often frames were asked for again. */
  naks: number;
  /** Why it was stopped before its end, or null. */
  cancelReason: CancelReason | null;
}

/** What only the end of a run can say. */
export type RunEnd = Pick<
  RunOutcome,
  | "kind"
  | "usage"
  | "completionTokens"
  | "isHeard"
  | "error"
  | "workerId"
  | "offers"
  | "cancelReason"
>;

/** Most runs are rejected by nobody. */
const NO_REJECTS: readonly RejectReason[] = [];

/** Notes what happens to a run, from its start on. */
export class RunRecord {
  readonly startedAtMs: number;
  readonly #now: MonotonicNow;
  #repeats = 0;
  #rejects = NO_REJECTS;
  #naks = 0;
  #dispatchMs: number | null = null;
  #firstByteMs: number | null = null;

  constructor(now: MonotonicNow) {
    this.#now = now;
    this.startedAtMs = now();
  }

  get repeats(): number {
    return this.#repeats;
  }

  /** A worker runs it. The first one counts. */
  onAccepted(): void {
    this.#dispatchMs ??= this.#sinceStartMs();
  }

  onRejected(reason: RejectReason): void {
    this.#rejects = [...this.#rejects, reason];
  }

  /** Bytes of the answer have come. The first ones count. */
  onBytes(): void {
    this.#firstByteMs ??= this.#sinceStartMs();
  }

  onNak(): void {
    this.#naks += 1;
  }

  onRepeat(): void {
    this.#repeats += 1;
  }

  /** All of it, now that the run is over. */
  outcome(end: RunEnd): RunOutcome {
    return {
      ...end,
      dispatchMs: this.#dispatchMs,
      firstByteMs: this.#firstByteMs,
      durationMs: this.#sinceStartMs(),
      repeats: this.#repeats,
      rejects: this.#rejects,
      naks: this.#naks,
    };
  }

  #sinceStartMs(): number {
    return this.#now() - this.startedAtMs;
  }
}
