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

const COUNT_NAMES = [
  "complete",
  "error",
  "lost",
  "rejected",
  "clientGone",
  "edgeDead",
  "retries",
  "naks",
  "resentFrames",
  "strayAnswers",
  "cancelled",
  "forgotten",
  "blocked",
] as const;

/** How often things happened: a simulation that never sees a fault proves nothing. */
export type Counts = Record<typeof COUNT_NAMES[number], number>;

/** All zero. */
export function noCounts(): Counts {
  return {
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
  };
}

/** Adds the counts of one run to those of all. */
export function addCounts(total: Counts, counts: Counts): void {
  for (const name of COUNT_NAMES) total[name] += counts[name];
}

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
