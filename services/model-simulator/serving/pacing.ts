/** When the pieces of an answer are sent, and how it fails on request. */
import { setTimeout } from "node:timers/promises";
import { monotonicNow } from "@gateway/shared/process/clock";
import type { Controls, Pace } from "./controls.ts";
import { requestedError } from "./errors.ts";

const BREAK_PAUSE_MS = 50;
/** Practically forever. */
const STALL_MS = 24 * 60 * 60 * 1_000;
const GARBAGE = "data: <html>502 Bad Gateway</html>\n\n";

interface PacingOptions {
  readonly controls: Controls;
  readonly pace: Pace;
  /** Aborted when the client has disconnected. */
  readonly signal: AbortSignal;
}

export class Pacing {
  isBroken = false;

  constructor(readonly options: PacingOptions) {}

  get stepMs(): number {
    const { tokensPerSecond } = this.options.pace;
    return tokensPerSecond === 0 ? 0 : 1_000 / tokensPerSecond;
  }

  /** The pieces as they become due, one for each token, until they end or the answer breaks. */
  async *run<Piece>(
    pieces: Iterable<Piece | Promise<Piece>>,
  ): AsyncGenerator<Awaited<Piece>> {
    const { controls, pace, signal } = this.options;
    const isBreakDue = () => count === controls.break?.afterTokens;
    let dueAt = monotonicNow() + pace.firstTokenMs;
    let count = 0;
    for await (const piece of pieces) {
      if (isBreakDue()) break;
      await sleep(dueAt - monotonicNow(), signal);
      yield piece;
      count += 1;
      dueAt += this.stepMs;
    }
    if (isBreakDue()) await this.break();
  }

  /** These pieces, then the end of the answer: `end`, or that of a broken one. */
  async *ending<Piece>(
    pieces: AsyncIterable<Piece>,
    end: () => string,
  ): AsyncGenerator<Piece | string> {
    yield* pieces;
    yield this.isBroken ? this.faultText : end();
  }

  /** Breaks the answer: ends its connection, never settles, or leaves {@link faultText} to be sent. */
  async break(): Promise<void> {
    const { controls, signal } = this.options;
    // Lets the client read what was sent before the fault.
    await sleep(BREAK_PAUSE_MS, signal);
    this.isBroken = true;
    if (controls.break?.type === "cut") throw new Error("Cut on request");
    if (controls.break?.type === "stall") await sleep(STALL_MS, signal);
  }

  get faultText(): string {
    return this.options.controls.break?.type === "fail"
      ? `data: ${JSON.stringify(requestedError(500).body)}\n\n`
      : GARBAGE;
  }
}

/** Waits for at least one turn of the event loop. Rejects when the signal aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return setTimeout(Math.max(0, ms), undefined, signal && { signal });
}
