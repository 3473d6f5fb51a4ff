/** One line per job, with the id the caller saw. Never a prompt or an answer. */
import { publicRequestId } from "@gateway/shared/process/ids";
import { type Log, roundMs } from "@gateway/shared/process/log";
import type { JobReport, RunningJobOptions } from "./running_job.ts";

/** Logs a job whose backend is done. */
export function logJob(
  log: Log,
  { requestId, edgeId, attempt }: RunningJobOptions,
  report: JobReport,
): void {
  log.info("job", {
    requestId: publicRequestId(requestId),
    edgeId,
    attempt,
    model: report.model ?? undefined,
    outcome: report.outcome,
    errorCode: report.errorCode ?? undefined,
    cancelReason: report.cancelReason ?? undefined,
    promptTokens: report.promptTokens ?? undefined,
    completionTokens: report.completionTokens,
    firstByteMs: report.firstByteMs === null
      ? undefined
      : roundMs(report.firstByteMs),
    durationMs: roundMs(report.durationMs),
  });
}
