/** Answers questions of key-admin about the backends of the jobs that run here. */
import type { BusLink } from "../../bus/link_nats.ts";
import {
  decodeRunningQuestion,
  encodeRunningAnswer,
  RUNNING_LIMITS,
} from "../../bus/running.ts";
import { subjects } from "../../bus/subjects.ts";
import type { Job } from "./job.ts";

/** What a worker needs to tell where its jobs run. */
export interface RunningJobsOptions {
  bus: Pick<BusLink, "isConnected" | "publish" | "subscribe">;
  workerId: string;
  worker: { readonly jobs: readonly Pick<Job, "options" | "report">[] };
}

/** Tells which backends the jobs are at, whenever it is asked. */
export function tellRunningJobs(
  { bus, workerId, worker }: RunningJobsOptions,
): void {
  bus.subscribe(subjects.runningWanted, ({ data }) => {
    const question = decodeRunningQuestion(data);
    if (question?.what !== "list" || !bus.isConnected) return;
    const { ask, account } = question;
    const backends: Record<string, string> = {};
    let count = 0;
    for (const { options, report: { backend } } of worker.jobs) {
      const isAsked = account === null || options.message.account === account;
      if (backend === undefined || !isAsked) continue;
      if (count === RUNNING_LIMITS.backendsMax) break;
      backends[options.requestId] = backend;
      count += 1;
    }
    const answer = encodeRunningAnswer({ from: "worker", ask, backends });
    bus.publish(subjects.running(workerId), answer);
  });
}
