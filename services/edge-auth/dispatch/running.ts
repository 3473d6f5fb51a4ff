/** Answers questions of key-admin about the requests that run here. */
import type { BusLink } from "@gateway/shared/bus/link_nats";
import {
  decodeRunningQuestion,
  encodeRunningAnswer,
  RUNNING_LIMITS,
  type RunningQuestion,
  type RunningRequest,
} from "@gateway/shared/bus/running";
import { subjects } from "@gateway/shared/bus/subjects";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { Dispatcher } from "./dispatcher.ts";

/** The runs of this edge. */
type Runs = Pick<Dispatcher, "runs" | "stopRequest">;

/** What an edge needs to tell what runs. */
export interface RunningOptions {
  bus: Pick<BusLink, "isConnected" | "publish" | "subscribe">;
  edgeId: string;
  dispatcher: Runs;
  log: Pick<Log, "info">;
}

/** Tells what runs here whenever it is asked, and stops requests. */
export function tellRunning(
  { bus, edgeId, dispatcher, log }: RunningOptions,
): void {
  bus.subscribe(subjects.runningWanted, ({ data }) => {
    const question = decodeRunningQuestion(data);
    if (question === null || !bus.isConnected) return;
    const isStop = question.what === "stop";
    const hasStopped = isStop &&
      dispatcher.stopRequest(question.requestId, question.account);
    if (isStop && hasStopped) {
      const { account: ownerId, requestId } = question;
      const line = { ownerId, requestId: publicRequestId(requestId) };
      log.info("request_stopped", line);
    }
    const runs = isStop ? [] : runsFor(question, dispatcher);
    const answer = encodeRunningAnswer({
      from: "edge",
      ask: question.ask,
      total: runs.length,
      runs: runs.slice(0, RUNNING_LIMITS.runsMax),
      hasStopped,
    });
    bus.publish(subjects.running(edgeId), answer);
  });
}

/** The runs of an account, or of all, oldest first; not those of the edge itself. */
function runsFor(
  { account: wanted }: Pick<RunningQuestion, "account">,
  dispatcher: Pick<Runs, "runs">,
): RunningRequest[] {
  return dispatcher.runs().flatMap(({ job, workerId, progress }) => {
    const { requestId, keyId, account, kind, model } = job;
    if (account === undefined || keyId === "") return [];
    if (wanted !== null && account !== wanted) return [];
    const { state, ageMs, tokens } = progress;
    return {
      requestId,
      keyId,
      account,
      kind,
      model: model.slice(0, REQUEST_LIMITS.modelCharsMax).toWellFormed(),
      workerId,
      state,
      ageMs: Math.round(ageMs),
      tokens,
    };
  });
}
