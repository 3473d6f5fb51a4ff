/** An edge in the process of a test, connected to a real nats-server. */
import type { AppDependencies } from "../../../services/edge-auth/api/dependencies.ts";
import { startApp } from "../../../services/edge-auth/app_fixture.ts";
import { Dispatcher } from "../../../services/edge-auth/dispatch/dispatcher.ts";
import { CONTROL_WAIT_MS } from "../../../services/edge-auth/dispatch/edge_bus.ts";
import type {
  RunJob,
  RunOutcome,
} from "../../../services/edge-auth/dispatch/outcome.ts";
import { WholeBody } from "../../../services/edge-auth/dispatch/request_body.ts";
import {
  type Keeping,
  startKeeping,
} from "../../../services/edge-auth/kept/parts.ts";
import { leaseOf } from "../../../services/edge-auth/requests/lease_fixture.ts";
import { type BusLink, connectBus } from "@gateway/shared/bus/link_nats";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { monotonicNow } from "@gateway/shared/process/clock";
import { newInstanceId } from "@gateway/shared/process/ids";
import { type Log, silentLog } from "@gateway/shared/process/log";

/** The longest that a run of a test takes. */
export const REQUEST_MS = 60_000;

/** What differs between edges. */
export interface EdgeOptions {
  /** NATS servers, `host:port`, in the order in which they are tried. */
  servers: string[];
  /** How many times longer its runs wait for workers; 1 if left out. */
  slower?: number;
  /** How long the bus may be away before runs end. */
  busLostMs?: number;
  /** The longest that a run may take; {@link REQUEST_MS} if left out. */
  requestTimeoutMs?: number | undefined;
  log?: Log;
  /**
   * What of the app differs: keys and admission (every key is admitted if left out),
   * models, hosts, bounds.
   */
  door?: Partial<AppDependencies>;
  /** Makes what keeps answers of what it needs; absent: nothing is kept. */
  keeping?: (parts: EdgeParts) => Keeping;
}

/** What is inside of an edge that keeps answers. */
export interface EdgeParts {
  readonly link: BusLink;
  readonly dispatcher: Dispatcher;
}

/** A request that an edge admitted. */
interface Admitted {
  /** Empty until it runs. */
  request: object;
  /** How it ended, once for each settlement; null if it was released before it ran. */
  settlements: (RunOutcome | null)[];
}

/** A running edge, and what is inside of it. */
export interface InProcessEdge extends AsyncDisposable {
  readonly id: string;
  readonly link: BusLink;
  readonly dispatcher: Dispatcher;
  /** What keeps its answers, if it does. */
  readonly keeping: Keeping | undefined;
  /** As an SDK takes it. */
  readonly baseUrl: string;
  /** Requests that were admitted without a Redis. */
  readonly admitted: readonly Admitted[];
  /** How they ended. */
  settlements(): (RunOutcome | null)[];
}

/**
 * Timers that are gone when what they belong to is closed, and that are not set after
 * that: requests which end with it still schedule their last messages.
 */
export class Timers {
  readonly #timers = new Set<ReturnType<typeof setTimeout>>();
  #isClosed = false;

  /** Runs a function once, after `waitMs`, unless they are closed. */
  schedule(run: () => void, waitMs: number): void {
    if (this.#isClosed) return;
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      run();
    }, waitMs);
    this.#timers.add(timer);
  }

  /** Runs none of them any more. */
  close(): void {
    this.#isClosed = true;
    this.#timers.forEach(clearTimeout);
  }
}

/** Connects to the first of these servers that answers. */
export function connectTo(
  servers: string[],
  name: string,
  log: Log = silentLog,
): Promise<BusLink> {
  return connectBus({ servers, name, log, now: monotonicNow, random: () => 0 });
}

/** Starts an edge and waits for nothing: workers are found by their beats. */
export async function startEdge(options: EdgeOptions): Promise<InProcessEdge> {
  const id = newInstanceId();
  const { slower = 1, log = silentLog } = options;
  const link = await connectTo(options.servers, `edge ${id}`, log);
  waitLonger(link, slower);
  const soon = new Timers();
  const dispatcher = new Dispatcher({
    bus: link,
    edgeId: id,
    random: Math.random,
    log,
    now: () => monotonicNow() / slower,
    scheduleSoon: (flush) => soon.schedule(flush, CONTROL_WAIT_MS),
    requestTimeoutMs: options.requestTimeoutMs ?? REQUEST_MS,
    busLostMs: options.busLostMs ?? DISPATCH_LIMITS.busLostMs,
    queueOf: (model) => options.door?.catalog?.get(model)?.queue,
  });
  const admitted: Admitted[] = [];
  const leaveBus = await dispatcher.join(link);
  const keeping = options.keeping?.({ link, dispatcher });
  const stopKeeping = keeping &&
    await startKeeping(keeping, { bus: link, dispatcher });
  const app = await startApp({
    ...keeping && { keeper: keeping.keeper, answers: keeping.answers },
    ...admitAll(admitted),
    log,
    dispatcher: {
      start: (job, sink, onEnded) => {
        noteRequest(admitted, job);
        return dispatcher.start(job, sink, onEnded);
      },
      isStoppedSince: (keyId, sinceMs) =>
        dispatcher.isStoppedSince(keyId, sinceMs / slower),
    },
    ...options.door,
  });
  return {
    id,
    link,
    dispatcher,
    keeping,
    baseUrl: `${app.origin}/v1`,
    admitted,
    settlements: () => admitted.flatMap(({ settlements }) => settlements),
    [Symbol.asyncDispose]: async () => {
      await app[Symbol.asyncDispose]();
      await stopKeeping?.();
      leaveBus();
      await link.close();
      soon.close();
    },
  };
}

/** Lets requests to workers wait `slower` times as long. */
function waitLonger(link: BusLink, slower: number): void {
  const request = link.request.bind(link);
  link.request = (subject, payload, { timeoutMs }) =>
    request(subject, payload, { timeoutMs: slower * timeoutMs });
}

/** Requests run in the order of their admission, unless their clients have left. */
function noteRequest(admitted: readonly Admitted[], { body }: RunJob): void {
  const next = admitted.find(({ request, settlements }) =>
    Object.keys(request).length === 0 && settlements.length === 0
  );
  const { bytes = null } = body instanceof WholeBody ? body : {};
  if (next === undefined || bytes === null) return;
  next.request = JSON.parse(new TextDecoder().decode(bytes));
}

/** Admits everything and writes down how it ended. */
function admitAll(
  admitted: Admitted[],
): Pick<AppDependencies, "keys" | "admission"> {
  const principal = { keyId: "key_test", ownerId: "own_test" };
  return {
    keys: { find: () => Promise.resolve(principal) },
    admission: {
      modelsOf: () => Promise.resolve([]),
      checkRefused: () => Promise.resolve(),
      admit: () => {
        const settlements: Admitted["settlements"] = [];
        admitted.push({ request: {}, settlements });
        return Promise.resolve(leaseOf(principal, {
          settle(outcome) {
            settlements.push(outcome);
            return null;
          },
          undo: () => void settlements.push(null),
        }));
      },
    },
  };
}
