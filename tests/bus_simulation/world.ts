import assert from "node:assert/strict";
import type { StreamLimits } from "@gateway/shared/limits";
import type { Bus } from "./bus.ts";
import type { Profile } from "./profile.ts";
import type { Random } from "./random.ts";
import type { Scheduler } from "./scheduler.ts";
import type { Script } from "./script.ts";

/** What truly happened in one attempt, for checks. Neither end of the stream sees it. */
export interface AttemptRecord {
  name: string;
  script: Script;
  /** How much of the script the backend has said. */
  saidBytes: number;
  saidTokens: number;
  hasSaidEnd: boolean;
  /** By when the edge, and 35 s later the worker, must be done with it. */
  settleByMs: number;
  /** Since when the edge wants no more of it, or null. */
  unwantedSinceMs: number | null;
  /** Whether the edge knew then which worker to tell. */
  isWorkerKnown: boolean;
}

/** What the parts of a simulated run share. */
export interface World {
  scheduler: Scheduler;
  random: Random;
  bus: Bus;
  limits: StreamLimits;
  profile: Profile;
  counts: Counts;
  log: (text: string) => void;
}

/** All zero. */
export const noCounts = () => ({
  complete: 0,
  error: 0,
  lost: 0,
  rejected: 0,
  clientGone: 0,
  edgeDead: 0,
  retries: 0,
  naks: 0,
  resentFrames: 0,
  strayAnswers: 0,
  cancelled: 0,
  forgotten: 0,
  blocked: 0,
});

/** How often things happened: a simulation that never sees a fault proves nothing. */
export type Counts = ReturnType<typeof noCounts>;

/** A worker is done with an attempt at the latest this long after the edge. */
export const WORKER_GRACE_MS = 35_000;

/** Fails unless `bytes` are what the script says from `offset` on. */
export function assertSaid(
  record: AttemptRecord,
  offset: number,
  bytes: Uint8Array,
): void {
  const end = offset + bytes.length;
  assert(end <= record.saidBytes, `${record.name}: more than was said`);
  for (let i = 0; i < bytes.length; i++) {
    if (bytes[i] !== record.script.bytes[offset + i]) {
      assert.fail(`${record.name}: other bytes than said at ${offset + i}`);
    }
  }
}
