/** What a job consists of, and what it needs of its worker. */
import type { JobMessage, JobRequest, UploadedFile } from "../../bus/job.ts";
import type { WorkerFamily } from "../../bus/subjects.ts";
import type { KeptLogWriter } from "../../kept/log.ts";
import type { Usage } from "../../openai/completion.ts";
import type {
  MonotonicNow,
  SteadyClock,
  WallNow,
} from "../../process/clock.ts";
import type { Log } from "../../process/log.ts";
import type { PoolContext } from "../../upstream/attempt.ts";
import type { EntryTurns } from "./entry_turns.ts";
import type { JobMemory, WorkerMemory } from "./memory.ts";

/** What a request needs to be run, apart from itself. */
export interface JobContext extends PoolContext {
  /** Unix seconds, the same for every attempt at a model server. */
  created: number;
  files: readonly UploadedFile[];
  /** The account that sent it; absent: not known. */
  account?: string | undefined;
  /**
   * Sends the next part: lines, each ended by `\n`, or bytes; `tokens` counts all so
   * far. If the buffer is full, returns a promise that resolves when there is space
   * again.
   */
  write(part: string | Uint8Array, tokens: number): Promise<void> | undefined;
  /**
   * Called between two reads of a stream; if the worker is busy, resolves when to read
   * on.
   */
  pause(): Promise<void> | undefined;
}

/** What a request cost, as its model server states it or as it was counted. */
export interface JobCost {
  /** Completion tokens, or the unit of a kind without tokens. */
  tokens: number;
  /** Null for a kind without tokens. */
  usage: Usage | null;
}

/** Where the frames of an answer go: an edge, and the request that it runs there. */
export interface FrameTarget {
  edgeId: string;
  requestId: string;
}

/** A job as it came from the bus. */
export interface JobOptions extends FrameTarget {
  message: JobMessage;
}

type Runners = ReadonlyMap<string, RunRequest<[JobMemory]>>;

/** Where answers are kept, and when their entries are written. */
export interface KeepingPorts {
  readonly log: KeptLogWriter;
  readonly turns: Pick<EntryTurns, "after">;
}

/** What all jobs of a worker have in common. */
export interface JobEnvironment {
  family: WorkerFamily;
  workerId: string;
  /** The functions that run requests, by the id of their model. */
  runners: Pick<Runners, "get" | "has" | "keys"> & {
    /** How long the servers of a model stay at their limits; 0: they are not. */
    saturatedMs?(model: string): number;
  };
  now: MonotonicNow;
  wallNow: WallNow;
  /** The clock of streams, which stands still while the process is stalled. */
  steadyClock: Pick<SteadyClock, "now">;
  log: Log;
  /** Where bodies and answers are counted. */
  memory: Pick<WorkerMemory, "openJob" | "tick">;
  /** How answers are kept; absent: they are not, and jobs that ask for it fail. */
  keeping?: KeepingPorts | undefined;
  /**
   * Runs a function after `waitMs`; 0 means at the end of this turn of the event loop.
   */
  schedule: (run: () => void, waitMs: number) => void;
}

/**
 * Runs a request on the backends of its model. Rejects with an `UpstreamError`, with
 * any error once the signal has aborted, or with an error of ours.
 */
export type RunRequest<More extends unknown[] = []> = (
  request: JobRequest,
  context: JobContext,
  ...more: More
) => Promise<JobCost>;
