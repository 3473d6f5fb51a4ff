/** Asks once for the running requests, on a connection of its own, for commands. */
import { connectBus } from "@gateway/shared/bus/link_nats";
import { monotonicNow } from "@gateway/shared/process/clock";
import { newInstanceId } from "@gateway/shared/process/ids";
import { silentLog } from "@gateway/shared/process/log";
import {
  type BusAccess,
  INBOX_PREFIXES,
} from "@gateway/shared/process/service_variables";
import { RunningRequests } from "./running_requests.ts";

/** Edges answer within milliseconds, or the bus cannot be reached. */
const CONNECT_MS = 2_000;

/** The running requests, as long as somebody asks. */
export interface ConnectedRunning
  extends Pick<RunningRequests, "list" | "stop">, AsyncDisposable {}

/** Throws a `BusUnavailableError` if the bus cannot be reached. */
export async function askRunning(
  { bus: access }: { bus: BusAccess },
): Promise<ConnectedRunning> {
  const bus = await connectBus({
    ...access,
    name: "gateway running",
    inboxPrefix: INBOX_PREFIXES.admin,
    log: silentLog,
    now: monotonicNow,
    random: Math.random,
    timing: { firstConnectMs: CONNECT_MS },
  });
  const options = { bus, now: monotonicNow, newId: newInstanceId };
  const running = new RunningRequests(options);
  await bus.flush();
  return {
    list: (account) => running.list(account),
    stop: (request) => running.stop(request),
    [Symbol.asyncDispose]: () => bus.close(),
  };
}
