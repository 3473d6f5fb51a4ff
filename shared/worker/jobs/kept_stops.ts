/** Stops jobs whose edges are gone: their answers are kept, and they run on. */
import type { JobMessage } from "../../bus/job.ts";
import type { BusLink } from "../../bus/link_nats.ts";
import { subjects } from "../../bus/subjects.ts";
import { decodeStopOrder, stoppedKeyIn } from "../../kept/stop_order.ts";
import type { ErrorCode } from "../../openai/error.ts";

/** A job, as orders name it. */
export interface StoppableJob {
  readonly options: {
    readonly requestId: string;
    readonly message: Pick<JobMessage, "account" | "keep">;
  };
  /** Stops it, if its edge is gone. */
  stopKept(code: ErrorCode, message: string): void;
}

/** The jobs of a worker, and where it hears of orders. */
export interface KeptStopsOptions {
  bus: Pick<BusLink, "subscribe">;
  worker: { readonly jobs: readonly StoppableJob[] };
}

/** Stops the jobs that edges or key-admin order to be stopped. */
export function followKeptStops({ bus, worker }: KeptStopsOptions): void {
  bus.subscribe(subjects.stopKept, ({ data }) => {
    const order = decodeStopOrder(data);
    if (order === null) return;
    for (const job of worker.jobs) {
      const { requestId, message: { account } } = job.options;
      if (requestId !== order.requestId || account !== order.account) continue;
      job.stopKept("request_stopped", "The request was stopped.");
    }
  });
  bus.subscribe(subjects.keyChanged, ({ data }) => {
    const keyId = stoppedKeyIn(data);
    if (keyId === null) return;
    for (const job of worker.jobs) {
      if (job.options.message.keep?.keyId !== keyId) continue;
      job.stopKept("key_revoked", "The API key was revoked.");
    }
  });
}
