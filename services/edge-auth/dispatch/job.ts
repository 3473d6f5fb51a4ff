/** Puts jobs on the bus: small ones in one message, large ones in acknowledged pieces. */
import {
  encodeJob,
  encodePiece,
  encodeRequest,
  JOB_VERSION,
  type JobMessage,
  pieceCount,
} from "@gateway/shared/bus/job";
import type { BusLink } from "@gateway/shared/bus/link";
import {
  chatBodySubject,
  edgeStreamSubject,
} from "@gateway/shared/bus/subjects";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import { BUS_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import type { ChatRun } from "./run.ts";

export interface JobSenderDependencies {
  bus: Pick<BusLink, "request">;
  edgeId: string;
  now: MonotonicNow;
  log: Log;
  /** False when the bus does not take it now. */
  publish: (subject: string, payload: Uint8Array, reply: string) => boolean;
  /** The worker does not take the body. */
  onUploadFailed: (run: ChatRun) => void;
}

/** A worker has this long to acknowledge a piece. */
const PIECE_TIMEOUT_MS = 2_000;

/** Sends the jobs of an edge, and remembers the large ones for another attempt. */
export class JobSender {
  readonly #d: JobSenderDependencies;
  /** Requests too large for one message, encoded. */
  readonly #largeBodies = new Map<ChatRun, Uint8Array>();

  constructor(dependencies: JobSenderDependencies) {
    this.#d = dependencies;
  }

  /** Publishes the run's next attempt. False when the bus does not take it now. */
  send(run: ChatRun, subject: string): boolean {
    const { requestId, request, traceparent } = run.job;
    const { edgeId, now, publish } = this.#d;
    const attempt = run.attempt + 1;
    const reply = edgeStreamSubject(edgeId, requestId, attempt);
    const envelope: JobMessage = {
      version: JOB_VERSION,
      attempt,
      deadlineMs: Math.max(1, Math.ceil(run.deadlineAtMs - now())),
      ...(traceparent === undefined ? {} : { traceparent }),
    };
    let large = this.#largeBodies.get(run);
    if (large === undefined) {
      const message = encodeJob({ ...envelope, request });
      if (message.length <= BUS_LIMITS.jobBytesMax) {
        return publish(subject, message, reply);
      }
      large = encodeRequest(request);
      this.#largeBodies.set(run, large);
    }
    const body = { bytes: large.length, pieces: pieceCount(large.length) };
    return publish(subject, encodeJob({ ...envelope, body }), reply);
  }

  /** The worker has room for the run: now it gets the body, if that did not fit. */
  onAccepted(run: ChatRun, workerId: string): void {
    const body = this.#largeBodies.get(run);
    if (body !== undefined) void this.#sendBody(run, workerId, body);
  }

  /** There will be no other attempt. */
  forget(run: ChatRun): void {
    this.#largeBodies.delete(run);
  }

  /** Sends the pieces of a large request, some at once, each acknowledged. */
  async #sendBody(
    run: ChatRun,
    workerId: string,
    body: Uint8Array,
  ): Promise<void> {
    const subject = chatBodySubject(workerId, run.job.requestId);
    const { attempt } = run;
    const pieces = pieceCount(body.length);
    let next = 0;
    const sendSome = async () => {
      while (
        next < pieces && run.attempt === attempt && run.state === "running"
      ) {
        const piece = encodePiece(body, attempt, next);
        next += 1;
        await this.#d.bus.request(subject, piece, {
          timeoutMs: PIECE_TIMEOUT_MS,
        });
      }
    };
    try {
      await Promise.all(
        Array.from({ length: BUS_LIMITS.piecesInFlight }, sendSome),
      );
    } catch (error) {
      this.#d.log.warn("body_upload_failed", {
        requestId: publicRequestId(run.job.requestId),
        workerId,
        error,
      });
      if (run.attempt === attempt) this.#d.onUploadFailed(run);
    }
  }
}
