import { fileURLToPath } from "node:url";
import { monotonicNow } from "@gateway/shared/process/clock";
import { LogFile } from "./files.ts";
import {
  type ServiceEvent,
  type ServiceName,
  Supervised,
  type Unit,
} from "./supervise.ts";
import { type Output, UpError } from "./terminal.ts";

export interface ClusterDeps {
  out: Output;
  logsDir: string;
  /** Removed when the launcher dies without doing so itself. */
  stateFile: string;
}

const STORES: readonly ServiceName[] = ["nats", "redis"];
/** Edges first, so that no new request arrives; NATS and Redis last, which all others need. */
const STOP_ORDER: readonly (readonly ServiceName[])[] = [
  ["edge-auth"],
  ["chat-worker"],
  ["key-admin"],
  ["model-simulator"],
  STORES,
];
/** Redis writes its data on SIGTERM. */
const STORE_GRACE_MS = 20_000;
/** Expected while the launcher itself warns of the simulator and creates the first key. */
const EXPECTED_AT_START = ["no_real_model", "key_store"];
/** The same event of the same process is shown at most this often. */
const REPEAT_MS = 10_000;
const TEXT_CHARS_MAX = 300;

/** All processes of one launcher. None outlives it, even if it is killed with -9. */
export class Cluster {
  /** In the order in which they were started. */
  readonly units: Supervised[] = [];
  /** Whether the start is over. */
  isReady = false;
  readonly #deps: ClusterDeps;
  readonly #watcher: ReturnType<typeof startWatcher>;
  readonly #shownAtMs = new Map<string, number>();
  #isStopping = false;

  constructor(deps: ClusterDeps) {
    this.#deps = deps;
    this.#watcher = startWatcher(deps.stateFile);
  }

  /** Starts a unit. Throws an {@link UpError} once the cluster is stopping. */
  start(unit: Unit, onEvent = (_event: ServiceEvent) => {}): Supervised {
    if (this.#isStopping) throw new UpError("The cluster is stopping");
    const { out, logsDir } = this.#deps;
    const supervised = new Supervised(unit, {
      log: new LogFile(`${logsDir}/${unit.name}.log`, out.warn),
      warn: out.warn,
      onChange: () =>
        this.#watcher.watch(this.units.flatMap(({ pid }) => pid ?? [])),
      onEvent: (event) => {
        onEvent(event);
        this.#show(unit.name, event);
      },
    });
    this.units.push(supervised);
    return supervised;
  }

  /** Stops everything, edges first, with this much time for each service. */
  async stop(graceMs: number): Promise<void> {
    this.#isStopping = true;
    for (const services of STOP_ORDER) {
      const group = this.units.filter(({ unit }) =>
        services.includes(unit.service)
      );
      const ms = services === STORES ? STORE_GRACE_MS : graceMs;
      await Promise.all(group.map((supervised) => supervised.stop(ms)));
    }
    await this.#watcher.close();
  }

  /** Shows a warning or an error: `chat-worker warn: redis_slow {"took_ms":250}`. */
  #show(name: string, logged: ServiceEvent): void {
    const { time: _time, service: _service, level, event, ...data } = logged;
    // During a stop, services warn about those that have stopped before them.
    const isRelevant = level === "error" ||
      level === "warn" && !this.#isStopping;
    const isExpected = !this.isReady && EXPECTED_AT_START.includes(event);
    const kind = `${name} ${event}`;
    const nowMs = monotonicNow();
    const shownAtMs = this.#shownAtMs.get(kind) ?? -Infinity;
    if (!isRelevant || isExpected || nowMs - shownAtMs < REPEAT_MS) return;
    this.#shownAtMs.set(kind, nowMs);
    const details = JSON.stringify(
      data,
      (member, value) => member === "stack" ? undefined : value,
    );
    const text = `${name} ${level}: ${event} ${details}`;
    this.#deps.out.warn(text.slice(0, TEXT_CHARS_MAX));
  }
}

/**
 * Ends the processes of the launcher when the launcher is killed, see `watch.sh`.
 * Each process leads its own group. All have ended when the watcher is closed.
 */
function startWatcher(stateFile: string) {
  const script = fileURLToPath(new URL("watch.sh", import.meta.url));
  const child = new Deno.Command("sh", {
    args: [script, stateFile],
    // In its own session, neither Ctrl-C nor the end of the terminal reaches it.
    detached: true,
    stdin: "piped",
    stdout: "null",
    stderr: "null",
  }).spawn();
  const pipe = child.stdin.getWriter();
  pipe.closed.catch(() => {});
  const write = (line: string) => {
    // Fails if the watcher was killed; the launcher continues without it.
    pipe.write(new TextEncoder().encode(`${line}\n`)).catch(() => {});
  };
  return {
    watch: (pids: readonly number[]) =>
      write(pids.map((pid) => `-${pid}`).join(" ")),
    async close() {
      write("");
      await pipe.close().catch(() => {});
      await child.status;
    },
  };
}
