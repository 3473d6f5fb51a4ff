import type { ApiError } from "@gateway/shared/openai/error";
import type { AnswerSink } from "./dispatch/run.ts";

/**
 * An answer whose last bytes wait until its slot is free. A client with one slot
 * that asks again as soon as it has read `[DONE]`, or the whole body, must not be
 * told that its own last request still runs, on this edge or another. Everything
 * before the end goes out as it comes.
 */
export class HeldAnswer implements AnswerSink {
  readonly #answer: AnswerSink;
  readonly #slotFreed: Promise<void>;
  readonly #holdMs: number;

  /** `holdMs`: the end waits no longer than this, so that a slow Redis holds up no answer. */
  constructor(answer: AnswerSink, slotFreed: Promise<void>, holdMs: number) {
    this.#answer = answer;
    this.#slotFreed = slotFreed;
    this.#holdMs = holdMs;
  }

  get hasStarted(): boolean {
    return this.#answer.hasStarted;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    this.#answer.onPayload(payload, sequence);
  }

  onEnd(): void {
    this.#hold(() => this.#answer.onEnd());
  }

  onError(error: ApiError): void {
    this.#hold(() => this.#answer.onError(error));
  }

  onAbandoned(): void {
    this.#answer.onAbandoned();
  }

  onRestart(): void {
    this.#answer.onRestart();
  }

  onTick(nowMs: number): void {
    this.#answer.onTick(nowMs);
  }

  #hold(end: () => void): void {
    const late = Promise.withResolvers<void>();
    const timer = setTimeout(late.resolve, this.#holdMs);
    void Promise.race([this.#slotFreed, late.promise]).then(() => {
      clearTimeout(timer);
      end();
    });
  }
}
