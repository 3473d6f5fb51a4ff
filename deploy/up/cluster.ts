import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { ServiceEvent } from "./child.ts";
import { isRecord, type LogFile, openLogFile } from "./files.ts";
import type { Output } from "./output.ts";
import {
  type ServiceName,
  supervise,
  type Supervised,
  type Unit,
} from "./supervise.ts";
import { UpError } from "./up_error.ts";
import type { Watcher } from "./watcher.ts";

/** All processes of one launcher. */
export interface Cluster {
  /** Starts a unit. Throws an {@link UpError} once the cluster is stopping. */
  start(unit: Unit, onEvent?: (event: ServiceEvent) => void): Supervised;
  /** In the order of starting. */
  readonly units: readonly Supervised[];
  /** Stops everything in {@link STOP_ORDER}; `hurry` ends the patience with services. */
  stop(graceMs: number, hurry: AbortSignal): Promise<void>;
}

export interface ClusterDeps {
  now: MonotonicNow;
  out: Output;
  watcher: Watcher;
  logsDir: string;
  /** A process began, became ready or ended. */
  onChange: () => void;
}

/** Doors first, so that nothing new comes in; last what everything stands on. */
const STOP_ORDER: readonly (readonly ServiceName[])[] = [
  ["edge-auth"],
  ["chat-worker"],
  ["key-admin"],
  ["model-simulator"],
  ["nats", "redis"],
];
const STORES: readonly ServiceName[] = ["nats", "redis"];
/** Redis writes its data on SIGTERM, so nothing hurries it. */
const STORE_GRACE_MS = 20_000;
const PROGRESS_EVERY_MS = 5_000;
/** The same event of the same process is shown at most this often. */
const REPEAT_MS = 10_000;

/** An empty cluster. */
export function createCluster(deps: ClusterDeps): Cluster {
  const { now, out, watcher, logsDir } = deps;
  const units: Supervised[] = [];
  const logs: LogFile[] = [];
  const shown = new Map<string, { atMs: number; hidden: number }>();
  let isStopping = false;
  let hasSaidDownload = false;

  const onChange = () => {
    watcher.watch(units.flatMap((unit) => unit.pid() ?? []));
    deps.onChange();
  };

  const showEvent = (name: string, event: ServiceEvent) => {
    const kind = `${name} ${event.event}`;
    const last = shown.get(kind);
    if (last && now() - last.atMs < REPEAT_MS) {
      last.hidden++;
      return;
    }
    const more = last?.hidden ? ` (and ${last.hidden} more)` : "";
    shown.set(kind, { atMs: now(), hidden: 0 });
    out.warn(`${name} ${event.level}: ${describeEvent(event)}${more}`);
  };

  const stopUnits = async (
    stage: readonly Supervised[],
    graceMs: number,
    hurry: AbortSignal,
  ) => {
    const left = new Set(stage.map(({ unit }) => unit.name));
    const ticker = setInterval(() => {
      const names = [...left].join(", ");
      out.say(`  still stopping ${names} (Ctrl-C again to hurry)`);
    }, PROGRESS_EVERY_MS);
    await Promise.all(stage.map(async ({ unit, stop }) => {
      const isStore = STORES.includes(unit.service);
      await (isStore ? stop(STORE_GRACE_MS) : stop(graceMs, hurry));
      left.delete(unit.name);
    }));
    clearInterval(ticker);
  };

  return {
    units,
    start(unit, onEvent = () => {}) {
      if (isStopping) throw new UpError("The cluster is stopping");
      const log = openLogFile(`${logsDir}/${unit.name}.log`, out.warn);
      logs.push(log);
      const supervised = supervise(unit, {
        now,
        log,
        onChange,
        warn: out.warn,
        onEvent(event) {
          onEvent(event);
          const isError = event.level === "error";
          // While it stops a service may miss what has stopped before it.
          if (isError || event.level === "warn" && !isStopping) {
            showEvent(unit.name, event);
          }
        },
        onDownload() {
          if (!hasSaidDownload) {
            out.say("  downloading packages, on the first start only");
          }
          hasSaidDownload = true;
        },
      });
      units.push(supervised);
      return supervised;
    },
    async stop(graceMs, hurry) {
      isStopping = true;
      for (const services of STOP_ORDER) {
        const stage = units.filter(({ unit }) =>
          services.includes(unit.service)
        );
        await stopUnits(stage, graceMs, hurry);
      }
      await Promise.all(logs.map((log) => log.close()));
    },
  };
}

/** What says where and when, which the reader knows. */
const OBVIOUS = ["time", "level", "service", "event", "stack"];
const TEXT_CHARS_MAX = 300;

/** An event for human eyes: `redis_down: address=127.0.0.1:6379 error=refused`. */
function describeEvent({ event, fields }: ServiceEvent): string {
  const details = Object.entries(fields)
    .filter(([name]) => !OBVIOUS.includes(name))
    .map(([name, value]) => {
      // The message of an error says enough.
      const shown = isRecord(value) ? value.message ?? value : value;
      return `${name}=${
        typeof shown === "string" ? shown : JSON.stringify(shown)
      }`;
    });
  const text = [details.length === 0 ? event : `${event}:`, ...details]
    .join(" ");
  return text.length <= TEXT_CHARS_MAX
    ? text
    : `${text.slice(0, TEXT_CHARS_MAX)}…`;
}
