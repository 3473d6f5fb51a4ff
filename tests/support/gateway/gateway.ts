/**
 * The one way to start a gateway in a test. There are four kinds, because a test sees
 * either whole processes or what is inside of them, never both:
 *
 * - processes show starts, signals, crashes, memory, and the environment. `launched`
 *   is the product as an operator starts it; in `services` the test starts each service
 *   itself, with stores of its own (TLS, sentinels, users of `deploy/`).
 * - parts in the process of the test show states, clocks and logs, start within
 *   milliseconds, and can be cut off from each other. `limited` has the real admission
 *   by a Redis; `open` admits every key and has no Redis.
 */
import type { LaunchedGateway, LaunchedOptions } from "./launched.ts";
import type { LimitedGateway, LimitedOptions } from "./limited.ts";
import type { OpenGateway, OpenOptions } from "./open.ts";
import type { ServicesGateway, ServicesOptions } from "./services.ts";

/** What all kinds have in common. */
export interface Gateway extends AsyncDisposable {
  /**
   * Returns the base URL of an edge, as an SDK takes it: `http://127.0.0.1:8080/v1`.
   * Edges are counted from 0 in the order of their start.
   */
  baseUrl(edge?: number): string;
}

/** The gateways that {@link startGateway} starts, by their kind. */
export interface Gateways {
  launched: LaunchedGateway;
  services: ServicesGateway;
  limited: LimitedGateway;
  open: OpenGateway;
}

/** Options of each kind. */
export interface GatewayOptions {
  launched: LaunchedOptions;
  services: ServicesOptions;
  limited: LimitedOptions;
  open: OpenOptions;
}

type Starters = {
  [Kind in keyof Gateways]: (
    options: GatewayOptions[Kind],
  ) => Promise<Gateways[Kind] & Gateway>;
};

/** Each loads what its kind needs: loading all of them costs a second. */
const STARTERS: Starters = {
  async launched(options) {
    const { startLaunched } = await import("./launched.ts");
    return await startLaunched(options);
  },
  async services(options) {
    const { ServicesGateway } = await import("./services.ts");
    return new ServicesGateway(options);
  },
  async limited(options) {
    const { startLimited } = await import("./limited.ts");
    return await startLimited(options);
  },
  async open(options) {
    const { startOpen } = await import("./open.ts");
    return await startOpen(options);
  },
};

/**
 * Starts a gateway on free ports. It ends, with all it owns, when it is disposed of.
 */
export function startGateway<Kind extends keyof Gateways>(
  kind: Kind,
  options: GatewayOptions[Kind] = {},
): Promise<Gateways[Kind]> {
  return STARTERS[kind](options);
}
