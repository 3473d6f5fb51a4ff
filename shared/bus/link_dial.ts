import {
  type NatsConnection,
  NatsConnectionImpl,
  setTransportFactory,
  TimeoutError,
} from "nats";
import { nodeResolveHost } from "nats/lib/node_transport.js";
import { BusUnavailableError } from "./link_errors.ts";
import {
  type BusAddress,
  type BusOptions,
  type BusPlan,
  clientOptions,
  formatAddress,
} from "./link_options.ts";
import type { Redial } from "./link_redial.ts";
import { createThrottle } from "./link_throttle.ts";
import { LinkTransport, type TransportOptions } from "./link_transport.ts";

/** Errors of sockets are logged once in this time, with a count of the others. */
const LOG_INTERVAL_MS = 1_000;

/**
 * Makes the first connection, trying every server again and again until one takes
 * it or the start-up deadline has passed. The client has such a loop too, but one
 * that never ends and tells nobody why it goes on.
 *
 * @throws BusUnavailableError after the deadline, with the reason of each server.
 */
export async function dialFirst(
  options: BusOptions,
  plan: BusPlan,
  redial: Redial,
): Promise<NatsConnection> {
  const { timing } = plan;
  const giveUpAt = options.now() + timing.firstConnectMs;
  for (let attempt = 1;; attempt++) {
    const reasons: string[] = [];
    for (const address of shuffle(plan.addresses, options.random)) {
      try {
        return await dial(address, options, plan, redial);
      } catch (error) {
        if (!(error instanceof BusUnavailableError)) throw error;
        reasons.push(error.message);
      }
    }
    const remainingMs = giveUpAt - options.now();
    if (remainingMs <= 0) throw new BusUnavailableError(reasons.join("; "));
    options.log.warn("bus_not_reached", { attempt, reasons });
    const waitMs = timing.reconnectWaitMs +
      options.random() * timing.reconnectJitterMs;
    await sleep(Math.min(waitMs, remainingMs));
  }
}

async function dial(
  address: BusAddress,
  options: BusOptions,
  plan: BusPlan,
  redial: Redial,
): Promise<NatsConnection> {
  const where = formatAddress(address);
  let socketError: Error | undefined;
  const report = throttledReport(options);
  setTransportFactory({
    factory: () => new LinkTransport(),
    dnsResolveFn: nodeResolveHost,
  });
  try {
    const transportOptions: TransportOptions = {
      onSocketError: (error) => {
        socketError ??= error;
        report(error);
      },
    };
    // As the client's own `connect()`, which sets a transport of its own.
    const client = await NatsConnectionImpl.connect({
      ...clientOptions(options, plan, redial),
      ...transportOptions,
      servers: [where],
    });
    // Only this server was dialled so far; from now on all of them may be.
    if (plan.addresses.length > 1) {
      client.setServers(plan.addresses.map(formatAddress));
    }
    return client;
  } catch (error) {
    throw new BusUnavailableError(
      `Cannot reach the bus at "${where}": ${
        reasonOf(error, socketError, plan)
      }`,
      { cause: error },
    );
  }
}

function throttledReport({ log, now }: BusOptions): (error: Error) => void {
  const mayLog = createThrottle(now, LOG_INTERVAL_MS);
  return (error) => {
    const heldBack = mayLog();
    if (heldBack === undefined) return;
    log.warn("bus_socket_error", { error, heldBack });
  };
}

/** The client calls all that happens after the server's greeting a timeout. */
function reasonOf(
  error: unknown,
  socketError: Error | undefined,
  { tls, timing }: BusPlan,
): string {
  if (!(error instanceof TimeoutError)) {
    return error instanceof Error ? error.message : String(error);
  }
  const reason = socketError?.message ?? `no answer within ${timing.dialMs} ms`;
  // A server that refuses one hangs up, and its reason may or may not arrive.
  return tls?.certFile === undefined
    ? reason
    : `${reason}; it may not accept the client certificate`;
}

function shuffle<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, rank: random() }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ item }) => item);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
