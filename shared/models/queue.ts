/** How requests for a model wait while all slots are in use: `queue` in the file. */
import { z } from "zod";
import type { WorkerFamily } from "../bus/subjects.ts";
import { DISPATCH_LIMITS } from "../limits.ts";
import { members } from "./backend.ts";

const MS_PER_SECOND = 1_000;
const WAIT_SECONDS_MAX = 3_600;
const REQUESTS_MAX = 100_000;
const TOKENS_MAX = 1_000_000_000;

/** How many may wait for a model at one edge, and how long. */
export interface QueueTerms {
  /** How long a request waits at most. */
  readonly waitMs: number;
  readonly requestsMax: number;
  /** Tokens that those who wait ask for together; `Infinity`: no bound. */
  readonly tokensMax: number;
}

/**
 * The lane in which uploads wait, whose models are not known yet. Other requests wait
 * in lanes that have the names of their models.
 */
export const uploadsLane = (family: WorkerFamily): string =>
  `${family} uploads`;

/** How requests wait for a model of which the list says nothing else. */
export const QUEUE_DEFAULT: QueueTerms = {
  waitMs: DISPATCH_LIMITS.queueWaitMs,
  requestsMax: DISPATCH_LIMITS.queueMax,
  tokensMax: Infinity,
};

/** The member of a model. */
export const queueSchema = members({
  wait_seconds: z.number().min(0).max(WAIT_SECONDS_MAX).optional().meta({
    default: QUEUE_DEFAULT.waitMs / MS_PER_SECOND,
  }).describe("How long a request waits for a free slot at most."),
  requests_max: z.int().min(0).max(REQUESTS_MAX).optional().meta({
    default: QUEUE_DEFAULT.requestsMax,
  }).describe("How many requests may wait at each edge; 0: none waits."),
  tokens_max: z.int().min(1).max(TOKENS_MAX).optional().describe(
    "How many tokens those who wait may ask for together, at each edge. Default: no bound.",
  ),
}).describe("How requests wait while all slots are in use.");

/** What the member says, with defaults. */
export function queueTerms(
  queue: z.output<typeof queueSchema> | undefined,
): QueueTerms {
  const { waitMs, requestsMax, tokensMax } = QUEUE_DEFAULT;
  const seconds = queue?.wait_seconds;
  return {
    waitMs: seconds === undefined ? waitMs : seconds * MS_PER_SECOND,
    requestsMax: queue?.requests_max ?? requestsMax,
    tokensMax: queue?.tokens_max ?? tokensMax,
  };
}
