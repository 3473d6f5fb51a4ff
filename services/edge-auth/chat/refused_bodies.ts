/** Makes a key pay for the time that its refused bodies took. */
import { REFUSED_BODIES } from "@gateway/shared/limits";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { remember } from "../keys/unknown_key_limit.ts";

export interface RefusedBodies {
  /** How long the key must wait before its next body is read, ms; 0: it need not. */
  waitMs(keyId: string): number;
  /** A body of the key was refused after this much work. */
  charge(keyId: string, tookMs: number): void;
}

/**
 * Refused bodies cost no quota, but they cost this process time. A key may spend a
 * fortieth of a core on them, and 50 ms at once: who sends a bad body by mistake
 * notices nothing.
 */
export function createRefusedBodies(now: MonotonicNow): RefusedBodies {
  const { shareOfCore, burstMs, keysMax } = REFUSED_BODIES;
  /** When what a key has spent is paid off. */
  const paidAtMs = new Map<string, number>();
  const owedMs = (keyId: string) =>
    Math.max(0, (paidAtMs.get(keyId) ?? 0) - now());
  return {
    waitMs: (keyId) =>
      Math.max(0, Math.ceil(owedMs(keyId) - burstMs / shareOfCore)),
    charge(keyId, tookMs) {
      const owed = owedMs(keyId) + tookMs / shareOfCore;
      // Set again, so that the busiest keys are the last to be dropped.
      remember(paidAtMs, keyId, now() + owed, keysMax);
    },
  };
}
