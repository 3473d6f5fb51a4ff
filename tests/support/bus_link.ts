import type { BusEvent } from "@gateway/shared/bus/link";
import {
  type BusLink,
  type BusOptions,
  connectBus,
} from "@gateway/shared/bus/link_nats";
import { monotonicNow } from "@gateway/shared/process/clock";
import { createRecordingLog, type RecordingLog } from "./recording_log.ts";
import { waitFor } from "./wait_for.ts";

/** A link of a test: closed with it, and remembering what happened to it. */
export interface TestLink extends AsyncDisposable {
  readonly link: BusLink;
  readonly log: RecordingLog;
  /** Every event so far, oldest first. */
  readonly events: BusEvent[];
  /** Every error of the server so far. */
  readonly errors: Error[];
  /** Waits until it is connected again, and returns what the log says of it. */
  reconnected(): Promise<{ server: unknown; outageMs: number }>;
}

/**
 * Connects to servers of this machine. Without `random`, servers are tried in the
 * order given and reconnects have no jitter.
 */
export async function connectTestLink(
  servers: readonly string[],
  options: Partial<Omit<BusOptions, "servers" | "log">> = {},
): Promise<TestLink> {
  const log = createRecordingLog();
  const link = await connectBus({
    name: "test",
    now: monotonicNow,
    random: () => 0,
    ...options,
    servers,
    log,
  });
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
      const { server, outageMs } = await waitFor(
        () => log.find("bus_reconnected"),
        { what: "the return of the link" },
      );
      return { server, outageMs: Number(outageMs) };
    },
    [Symbol.asyncDispose]: () => link.close(),
  };
}

/** Waits until messages flow. */
export async function isReady(link: BusLink): Promise<void> {
  await waitFor(() => link.isReady, { what: "a link that is ready" });
}
