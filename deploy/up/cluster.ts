import { fileURLToPath } from "node:url";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { isRecord, type LogFile, openLogFile } from "./files.ts";
import type { Output } from "./output.ts";
import {
  type ServiceEvent,
  type ServiceName,
  supervise,
  type Supervised,
  type Unit,
} from "./supervise.ts";
import { UpError } from "./up_error.ts";

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
  logsDir: string;
  /** What `up.json` says may have changed. */
  onChange: () => void;
}

const STORES: readonly ServiceName[] = ["nats", "redis"];
/** Doors first, so that nothing new comes in; last what everything stands on. */
const STOP_ORDER: readonly (readonly ServiceName[])[] = [
  ["edge-auth"],
  ["chat-worker"],
  ["key-admin"],
  ["model-simulator"],
  STORES,
];
/** Redis writes its data on SIGTERM, so nothing hurries it. */
const STORE_GRACE_MS = 20_000;
/** The same event of the same process is shown at most this often. */
const REPEAT_MS = 10_000;
/** What says where and when, which the reader knows. */
const OBVIOUS = ["time", "level", "service", "event", "stack"];
const TEXT_CHARS_MAX = 300;

/** An empty cluster. */
export function createCluster(deps: ClusterDeps): Cluster {
  const { now, out, logsDir, onChange } = deps;
  const units: Supervised[] = [];
  const logs: LogFile[] = [];
  const shownAtMs = new Map<string, number>();
  let isStopping = false;

  const showEvent = (name: string, event: ServiceEvent) => {
    // While it stops a service may miss what has stopped before it.
    if (event.level === "warn" ? isStopping : event.level !== "error") return;
    const kind = `${name} ${event.event}`;
    if (now() - (shownAtMs.get(kind) ?? -Infinity) < REPEAT_MS) return;
    shownAtMs.set(kind, now());
    const text = `${name} ${event.level}: ${describeEvent(event)}`;
    out.warn(text.slice(0, TEXT_CHARS_MAX));
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
          if (event.event === "setup_link") onChange();
          showEvent(unit.name, event);
        },
      });
      units.push(supervised);
      return supervised;
    },
    async stop(graceMs, hurry) {
      isStopping = true;
      for (const services of STOP_ORDER) {
        await Promise.all(
          units.filter(({ unit }) => services.includes(unit.service)).map(
            ({ stop }) =>
              services === STORES ? stop(STORE_GRACE_MS) : stop(graceMs, hurry),
          ),
        );
      }
      await Promise.all(logs.map((log) => log.close()));
    },
  };
}

/** An event for human eyes: `redis_down: address=127.0.0.1:6379 error=refused`. */
function describeEvent(event: ServiceEvent): string {
  const details = Object.entries(event)
    .filter(([name]) => !OBVIOUS.includes(name))
    .map(([name, value]) => {
      // The message of an error says enough.
      const shown = isRecord(value) ? value.message ?? value : value;
      const text = typeof shown === "string" ? shown : JSON.stringify(shown);
      return ` ${name}=${text}`;
    });
  return `${event.event}${details.length > 0 ? ":" : ""}${details.join("")}`;
}

/** Ends the launcher's processes when the launcher is killed, see `watch.sh`. */
export interface Watcher {
  /** Tells which processes run now. Each leads its own group. */
  watch(pids: readonly number[]): void;
  /** Ends the watcher. No process may be left. */
  close(): Promise<void>;
}

const SCRIPT = fileURLToPath(new URL("watch.sh", import.meta.url));

/** Starts the watcher, which removes `stateFile` at its end. */
export function startWatcher(stateFile: string): Watcher {
  const child = new Deno.Command("sh", {
    args: [SCRIPT, stateFile],
    // Its own session: neither Ctrl-C nor the end of the terminal reaches it.
    detached: true,
    stdin: "piped",
    stdout: "null",
    stderr: "null",
  }).spawn();
  const pipe = child.stdin.getWriter();
  const write = (line: string) => {
    // Fails when the watcher was killed; the launcher goes on without it.
    pipe.write(new TextEncoder().encode(`${line}\n`)).catch(() => {});
  };
  pipe.closed.catch(() => {});
  return {
    watch: (pids) => write(pids.map((pid) => `-${pid}`).join(" ")),
    async close() {
      write("");
      await pipe.close().catch(() => {});
      await child.status;
    },
  };
}
