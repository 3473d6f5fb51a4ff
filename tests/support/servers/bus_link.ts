/** Links to NATS that write down what happens to them. */
import type { BusEvent } from "@gateway/shared/bus/link";
import {
  type BusLink,
  type BusOptions,
  connectBus,
} from "@gateway/shared/bus/link_nats";
import { monotonicNow } from "@gateway/shared/process/clock";
import { createRecordingLog, type RecordingLog } from "../recording_log.ts";
import { until } from "../wait_for.ts";

/** A link to NATS, and what it reported. */
export interface TestLink extends AsyncDisposable {
  readonly link: BusLink;
  readonly log: RecordingLog;
  /** Every event and every error of the server so far, oldest first. */
  readonly events: BusEvent[];
  readonly errors: Error[];
  /** Waits until it is connected again, and returns what the log says of it. */
  reconnected(): Promise<{ server: unknown; outageMs: number }>;
}

/**
 * Connects to servers of this machine, by default in the order given and without
 * jitter.
 */
export async function connectTestLink(
  servers: readonly string[],
  options: Partial<Omit<BusOptions, "servers" | "log">> = {},
): Promise<TestLink> {
  const log = createRecordingLog();
  const defaults = { name: "test", now: monotonicNow, random: () => 0 };
  const link = await connectBus({ ...defaults, ...options, servers, log });
  const events: BusEvent[] = [];
  const errors: Error[] = [];
  link.onEvent((event, error) => {
    events.push(event);
    if (error !== undefined) errors.push(error);
  });
  return {
    link,
    log,
    events,
    errors,
    async reconnected() {
      const fields = await until(() => log.find("bus_reconnected"));
      const { server, outageMs } = fields;
      return { server, outageMs: Number(outageMs) };
    },
    [Symbol.asyncDispose]: () => link.close(),
  };
}

/** Waits until a link can carry messages. */
export const isReady = (link: BusLink) => until(() => link.isReady);
