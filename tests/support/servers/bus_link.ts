/** Links to NATS that write down what happens to them. */
import type { BusEvent } from "@gateway/shared/bus/link";
import {
  type BusLink,
  type BusOptions,
  connectBus,
} from "@gateway/shared/bus/link_nats";
import { monotonicNow } from "@gateway/shared/process/clock";
import { createRecordingLog } from "../recording_log.ts";
import { until } from "../wait_for.ts";

/** A link to NATS, and what it reported. */
export type TestLink = Awaited<ReturnType<typeof connectTestLink>>;

/**
 * Connects to servers of this machine, by default in the order given and without
 * jitter.
 */
export async function connectTestLink(
  servers: readonly string[],
  options: Partial<Omit<BusOptions, "servers" | "log">> = {},
) {
  const log = createRecordingLog();
  const defaults = { name: "test", now: monotonicNow, random: () => 0 };
  const link = await connectBus({ ...defaults, ...options, servers, log });
  /** Every event and every error of the server so far, oldest first. */
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
    /** Waits until it is connected again, and returns what the log says of it. */
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
