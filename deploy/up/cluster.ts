import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Guardian } from "./guardian.ts";
import type { ChildList } from "./leftovers.ts";
import { type LogFile, openLogFile } from "./log_file.ts";
import { createEventNotices } from "./notices.ts";
import type { Output } from "./output.ts";
import type { ServiceEvent } from "./service_event.ts";
import {
  type Ready,
  type ServiceName,
  supervise,
  type Supervised,
  type Unit,
} from "./supervise.ts";
import { UpError } from "./up_error.ts";

/** What may happen to a unit, for those who started it. */
export interface UnitEvents {
  /** Ready, for the first time or again after a restart. */
  onReady?: (ready: Ready) => void;
  onEvent?: (event: ServiceEvent) => void;
}

/** All processes of one launcher. */
export interface Cluster {
  /** Starts a unit. Throws an {@link UpError} once the cluster is stopping. */
  start(unit: Unit, events?: UnitEvents): Supervised;
  /** Names of units that were never ready yet. */
  waitingFor(): string[];
  /** Pids by service, in the order of starting. */
  pids(): { [service: string]: number[] };
  /** Stops everything in {@link STOP_ORDER}. */
  stop(options: ClusterStopOptions): Promise<void>;
}

export interface ClusterStopOptions {
  /** Patience with each service. */
  graceMs: number;
  /** Ends the patience with services. Never that with Redis: it is writing. */
  hurry: AbortSignal;
}

export interface ClusterDeps {
  now: MonotonicNow;
  out: Output;
  guardian: Guardian;
  children: ChildList;
  logsDir: string;
  /** A process began or ended. */
  onChange: () => void;
}

/**
 * Doors first, so that nothing new comes in; then those who do the work that is
 * under way; last the servers everything stands on.
 */
const STOP_ORDER: readonly (readonly ServiceName[])[] = [
  ["edge-auth"],
  ["chat-worker"],
  ["key-admin"],
  ["nats", "redis"],
];

const LOG_BYTES_MAX = 10 * 1024 * 1024;
/** Redis writes its data on SIGTERM. */
const STORE_GRACE_MS = 20_000;
const PROGRESS_EVERY_MS = 5_000;

/** An empty cluster. */
export function createCluster(deps: ClusterDeps): Cluster {
  const units: Supervised[] = [];
  const logs: LogFile[] = [];
  const waiting = new Set<string>();
  const describe = createEventNotices(deps.now);
  let isStopping = false;
  let saidDownload = false;

  const start = (unit: Unit, events: UnitEvents = {}): Supervised => {
    if (isStopping) throw new UpError("The cluster is stopping");
    const log = openLogFile({
      path: `${deps.logsDir}/${unit.name}.log`,
      bytesMax: LOG_BYTES_MAX,
      onFailure: deps.out.warn,
    });
    logs.push(log);
    waiting.add(unit.name);
    const supervised = supervise(unit, {
      now: deps.now,
      log,
      onStart(pid) {
        deps.guardian.add(pid, unit.kind);
        deps.children.add({ pid, kind: unit.kind, marker: unit.marker() });
        deps.onChange();
      },
      onEnd(pid) {
        deps.guardian.remove(pid);
        deps.children.remove(pid);
        deps.onChange();
      },
      notice: deps.out.warn,
      onEvent(event) {
        events.onEvent?.(event);
        // While it stops a service may complain about what has stopped before it.
        if (event.level !== "error" && (event.level !== "warn" || isStopping)) {
          return;
        }
        const text = describe(unit.name, event);
        if (text !== undefined) deps.out.warn(text);
      },
      onDownload() {
        if (saidDownload) return;
        saidDownload = true;
        deps.out.say("  downloading packages, on the first start only");
      },
      onReady(ready) {
        waiting.delete(unit.name);
        events.onReady?.(ready);
        deps.onChange();
      },
    });
    units.push(supervised);
    return supervised;
  };

  const stopStage = async (
    services: readonly ServiceName[],
    options: ClusterStopOptions,
  ) => {
    const stage = units.filter(({ unit }) => services.includes(unit.service));
    const left = new Set(stage.map(({ unit }) => unit.name));
    const ticker = setInterval(() => {
      const names = [...left].join(", ");
      deps.out.say(`  still stopping ${names} (Ctrl-C again to hurry)`);
    }, PROGRESS_EVERY_MS);
    const never = new AbortController().signal;
    await Promise.all(stage.map(async (supervised) => {
      const { kind, name } = supervised.unit;
      await supervised.stop(
        kind === "store" ? { graceMs: STORE_GRACE_MS, hurry: never } : options,
      );
      left.delete(name);
    }));
    clearInterval(ticker);
  };

  return {
    start,
    waitingFor: () => [...waiting],
    pids() {
      const pids: { [service: string]: number[] } = {};
      for (const supervised of units) {
        const list = pids[supervised.unit.service] ??= [];
        const pid = supervised.pid();
        if (pid !== undefined) list.push(pid);
      }
      return pids;
    },
    async stop(options) {
      isStopping = true;
      for (const services of STOP_ORDER) await stopStage(services, options);
      await Promise.all(logs.map((log) => log.close()));
    },
  };
}
