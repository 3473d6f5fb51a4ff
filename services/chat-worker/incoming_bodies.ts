/** Requests that come in pieces, until they are whole. */
import type { BodyAssembly, BodyPiece } from "@gateway/shared/bus/job";
import { decodeRequest, JobFormatError } from "@gateway/shared/bus/job";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { BUS_LIMITS } from "@gateway/shared/limits";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { RunningJob } from "./running_job.ts";

export interface IncomingBodiesOptions {
  now: MonotonicNow;
  /** All of a job's request is there. */
  onWhole: (job: RunningJob, request: ChatRequest) => void;
}

interface IncomingBody {
  assembly: BodyAssembly;
  lastPieceAtMs: number;
}

export class IncomingBodies {
  readonly #options: IncomingBodiesOptions;
  readonly #bodies = new Map<RunningJob, IncomingBody>();

  constructor(options: IncomingBodiesOptions) {
    this.#options = options;
  }

  /** A job whose request is still to come. */
  expect(job: RunningJob, assembly: BodyAssembly): void {
    this.#bodies.set(job, { assembly, lastPieceAtMs: this.#options.now() });
  }

  /** Takes a piece; one that fits is acknowledged, also for the second time. */
  take(job: RunningJob, piece: BodyPiece, acknowledge: () => void): void {
    const body = this.#bodies.get(job);
    if (body === undefined || job.options.attempt !== piece.attempt) return;
    body.lastPieceAtMs = this.#options.now();
    const added = body.assembly.add(piece);
    if (added === "invalid") {
      this.#refuse(job, "A part of the request was damaged.");
      return;
    }
    acknowledge();
    if (added === "complete") this.#finish(job, body.assembly);
  }

  /** Refuses jobs whose next piece has not come in time. */
  expire(): void {
    const now = this.#options.now();
    for (const [job, { lastPieceAtMs }] of this.#bodies) {
      if (now - lastPieceAtMs < BUS_LIMITS.pieceWaitMs) continue;
      this.#refuse(job, "The request did not arrive in time.");
    }
  }

  /** Gives back the slot of a job that was cancelled before it could run. */
  drop(job: RunningJob): void {
    if (this.#bodies.delete(job)) job.abandon();
  }

  #finish(job: RunningJob, assembly: BodyAssembly): void {
    this.#bodies.delete(job);
    let request: ChatRequest;
    try {
      request = decodeRequest(assembly.body);
    } catch (error) {
      if (!(error instanceof JobFormatError)) throw error;
      job.refuse(
        new ApiError("internal_error", "The request was damaged on its way."),
      );
      return;
    }
    this.#options.onWhole(job, request);
  }

  #refuse(job: RunningJob, message: string): void {
    this.#bodies.delete(job);
    job.refuse(new ApiError("worker_lost", message));
  }
}
