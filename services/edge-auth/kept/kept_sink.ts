/**
 * Hands the answer of a run to the client that has asked for it, for as long as it is
 * there. The run goes on without it.
 */
import type { CancelReason } from "@gateway/shared/bus/stream/control";
import type { ApiError } from "@gateway/shared/openai/error";
import type { AnswerSink, StartedRun } from "../dispatch/outcome.ts";
import type { Answer } from "../requests/answer.ts";

/** The receiver of a kept answer at the edge that runs its request. */
export class KeptSink implements AnswerSink {
  /** Null once the client has left. */
  #answer: Answer | null;
  #run: StartedRun | null = null;
  /** The last frame that has come; 0: none. */
  #lastSequence = 0;

  constructor(answer: Answer) {
    this.#answer = answer;
  }

  /** Part of it is in the log, so another worker must not begin anew. */
  get hasStarted(): boolean {
    return this.#lastSequence > 0;
  }

  /** Names its run; called once. */
  attach(run: StartedRun): void {
    this.#run = run;
    this.#answer?.attach({
      delivered: (sequence) => run.delivered(sequence),
      cancel: (reason, error) => this.#cancel(reason, error ?? null),
    });
  }

  /** The client has left, or reads nothing. */
  detach(): void {
    if (this.#answer === null) return;
    this.#answer.onAbandoned();
    this.#answer = null;
    // What it has not taken must not hold up the worker.
    if (this.hasStarted) this.#run?.delivered(this.#lastSequence);
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    this.#lastSequence = sequence;
    if (this.#answer === null) this.#run?.delivered(sequence);
    else this.#answer.onPayload(payload, sequence);
  }

  onEnd(): void {
    this.#answer?.onEnd();
  }

  onError(error: ApiError): void {
    this.#answer?.onError(error);
  }

  onAbandoned(): void {
    this.detach();
  }

  onRestart(): void {
    this.#answer?.onRestart();
  }

  onTick(nowMs: number): void {
    this.#answer?.onTick(nowMs);
  }

  #cancel(reason: CancelReason, error: ApiError | null): void {
    if (reason === "slow_client") this.detach();
    else this.#run?.cancel(reason, error);
  }
}
