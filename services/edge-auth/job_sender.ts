/** Sends jobs to workers: in one message, or announced first and then in pieces. */
import { encodePiece, pieceCount } from "@gateway/shared/bus/body_piece";
import {
  encodeEnvelope,
  encodeJob,
  encodeRequest,
  JOB_VERSION,
  type JobEnvelope,
} from "@gateway/shared/bus/job";
import type { BusLink } from "@gateway/shared/bus/link";
import {
  chatBodySubject,
  edgeStreamSubject,
} from "@gateway/shared/bus/subjects";
import type { MonotonicNow } from "@gateway/shared/clock";
import { publicRequestId } from "@gateway/shared/ids";
import { BUS_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/log";
import type { ChatRun } from "./chat_run.ts";

export interface JobSenderOptions {
  bus: Pick<BusLink, "request">;
  /** False when the bus does not take the message now. */
  publish: (subject: string, payload: Uint8Array, reply: string) => boolean;
  edgeId: string;
  now: MonotonicNow;
  log: Log;
}

const PIECE_TIMEOUT_MS = 2_000;

export class JobSender {
  readonly #options: JobSenderOptions;
  /** Requests too large for one message, encoded. Kept for another attempt. */
  readonly #largeBodies = new Map<ChatRun, Uint8Array>();

  constructor(options: JobSenderOptions) {
    this.#options = options;
  }

  /** Publishes the job of a run's next attempt. False when the bus does not take it now. */
  send(run: ChatRun, subject: string): boolean {
    const { publish, edgeId } = this.#options;
    const { requestId, request } = run.job;
    const reply = edgeStreamSubject(edgeId, requestId);
    const envelope = this.#envelopeOf(run);
    const large = this.#largeBodies.get(run);
    if (large !== undefined) {
      return publish(subject, encodeLarge(envelope, large), reply);
    }
    const message = encodeJob({ ...envelope, request });
    if (message.length <= BUS_LIMITS.jobBytesMax) {
      return publish(subject, message, reply);
    }
    const body = encodeRequest(request);
    this.#largeBodies.set(run, body);
    return publish(subject, encodeLarge(envelope, body), reply);
  }

  /** Sends what the accepted job had only announced, if anything. */
  onAccepted(run: ChatRun, workerId: string): void {
    const body = this.#largeBodies.get(run);
    if (body !== undefined) void this.#sendBody(run, workerId, body);
  }

  /** The run is over. */
  forget(run: ChatRun): void {
    this.#largeBodies.delete(run);
  }

  #envelopeOf(run: ChatRun): JobEnvelope {
    const { traceparent } = run.job;
    const leftMs = run.deadlineAtMs - this.#options.now();
    return {
      version: JOB_VERSION,
      attempt: run.attempt + 1,
      deadlineMs: Math.max(1, Math.ceil(leftMs)),
      ...(traceparent === undefined ? {} : { traceparent }),
    };
  }

  /** Some pieces at once, each acknowledged. A worker that takes one no more is lost to this run. */
  async #sendBody(
    run: ChatRun,
    workerId: string,
    body: Uint8Array,
  ): Promise<void> {
    const { bus, log } = this.#options;
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
        await bus.request(subject, piece, { timeoutMs: PIECE_TIMEOUT_MS });
      }
    };
    try {
      await Promise.all(
        Array.from({ length: BUS_LIMITS.piecesInFlight }, sendSome),
      );
    } catch (error) {
      log.warn("body_upload_failed", {
        requestId: publicRequestId(run.job.requestId),
        workerId,
        error,
      });
      if (run.attempt === attempt) run.onWorkerLost();
    }
  }
}

function encodeLarge(envelope: JobEnvelope, body: Uint8Array): Uint8Array {
  return encodeEnvelope({
    ...envelope,
    body: { bytes: body.length, pieces: pieceCount(body.length) },
  });
}
