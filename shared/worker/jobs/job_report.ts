/** How a job ended: for the metrics, the log and the trace. */
import type { CancelReason } from "../../bus/stream/control.ts";
import type { RejectReason } from "../../bus/stream/payloads.ts";
import type { JobMessage } from "../../bus/job.ts";
import type { WorkerFamily } from "../../bus/subjects.ts";
import { publicRequestId } from "../../process/ids.ts";
import type { Log } from "../../process/log.ts";
import type { Attributes, WorkSpan } from "../../process/tracing.ts";

/** How a job ended, for the log and the metrics. Final once its slot is free. */
export interface JobReport {
  /**
   * `cancelled`: the edge no longer needed it. `rejected`: its servers were at their
   * limits, and its edge queues it again.
   */
  outcome: "complete" | "failed" | "cancelled" | "rejected";
  /** Absent when its request never arrived. */
  model?: string;
  /** The name of the backend that was asked last; absent: none was. */
  backend?: string;
  errorCode?: string | undefined;
  cancelReason?: CancelReason;
  promptTokens?: number;
  completionTokens: number;
  /** How long it took from the arrival of the job to the first bytes of its answer. */
  firstByteMs?: number;
  durationMs: number;
}

/** Where a worker counts its jobs and answers. */
export interface WorkerCounters {
  /** A job was rejected. */
  rejected(reason: RejectReason): void;
  /** The slot of a job became free. */
  ended(report: JobReport): void;
  /** An answer, which took this many frames, was forgotten. */
  sent(frames: { framesSent: number; framesRepeated: number }): void;
  /** The process was stalled. */
  wokeUp(): void;
  /** A slot was kept for an edge whose turn it was, or did not need it in time. */
  turn(result: TurnResult): void;
}

/** What becomes of a slot that is kept for an edge. */
export type TurnResult = "given" | "returned" | "expired";

/** The job of a report, and where that is written. */
export interface JobRecord {
  readonly requestId: string;
  readonly edgeId: string;
  readonly message: Pick<JobMessage, "attempt">;
  readonly family: WorkerFamily;
  readonly log: Log;
  readonly span: WorkSpan;
}

/** Writes a report to the log, and ends the span of the job. */
export function recordJob(
  report: JobReport,
  { requestId, edgeId, message: { attempt }, family, log, span }: JobRecord,
): void {
  if (report.outcome !== "complete" || log.isSampled(requestId)) {
    const { completionTokens } = report;
    const isChat = family === "chat";
    log.info("job", {
      requestId: publicRequestId(requestId),
      edgeId,
      attempt,
      outcome: report.outcome,
      model: report.model,
      backend: report.backend,
      errorCode: report.errorCode,
      cancelReason: report.cancelReason,
      promptTokens: report.promptTokens,
      firstByteMs: report.firstByteMs,
      durationMs: report.durationMs,
      completionTokens: isChat ? completionTokens : undefined,
      units: isChat ? undefined : completionTokens,
    });
  }
  span.end(() => attributesOf(report, family), report.errorCode);
}

/** What the span of a job says of its end. */
function attributesOf(report: JobReport, family: WorkerFamily): Attributes {
  const units = family === "chat"
    ? "gen_ai.usage.output_tokens"
    : "gateway.units";
  return {
    "gateway.outcome": report.outcome,
    "gateway.backend": report.backend ?? "",
    "gen_ai.request.model": report.model ?? "",
    "gen_ai.usage.input_tokens": report.promptTokens ?? 0,
    [units]: report.completionTokens,
  };
}
