import type { MonotonicNow } from "@gateway/shared/process/clock";
import { tooManyBadBodies } from "./limits/refusal.ts";

export interface ParseLaneOptions {
  now: MonotonicNow;
  /** Calls back in that many ms. */
  schedule: (callback: () => void, ms: number) => void;
  /** Bodies that may wait; one more is refused. */
  waitingMax: number;
}

/**
 * Where the bodies of keys with many bad ones are parsed: one after the other, and
 * after each the lane rests for four times as long as it took. So however many
 * such bodies of however many keys arrive together, they cost a fifth of a core
 * and hold up others for the time of one.
 */
export interface ParseLane {
  /** Parses when it is this body's turn. Throws what `parse` throws, or `rate_limit_exceeded`. */
  run<T>(parse: () => T): Promise<T>;
}

/** Enough for a client that sends bad bodies by mistake; an attacker gains nothing from more. */
export const PARSE_LANE_WAITING_MAX = 32;
const REST_FACTOR = 4;
const RETRY_AFTER_MS = 1_000;

/** Makes a lane in which nothing waits. */
export function createParseLane(options: ParseLaneOptions): ParseLane {
  const { now, schedule, waitingMax } = options;
  const turns: (() => void)[] = [];
  let restsUntilMs = -Infinity;

  const scheduleNext = () => schedule(next, Math.max(0, restsUntilMs - now()));
  const next = () => {
    const startedAtMs = now();
    turns.shift()?.();
    const endedAtMs = now();
    restsUntilMs = endedAtMs + (endedAtMs - startedAtMs) * REST_FACTOR;
    if (turns.length > 0) scheduleNext();
  };

  return {
    run(parse) {
      if (turns.length >= waitingMax) {
        return Promise.reject(tooManyBadBodies(RETRY_AFTER_MS));
      }
      return new Promise((resolve, reject) => {
        turns.push(() => {
          try {
            resolve(parse());
          } catch (error) {
            reject(error);
          }
        });
        if (turns.length === 1) scheduleNext();
      });
    },
  };
}
