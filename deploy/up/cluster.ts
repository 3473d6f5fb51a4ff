import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { monotonicNow } from "@gateway/shared/process/clock";
import { LogFile } from "./files.ts";
import { LOOPBACK } from "./ports.ts";
import { type ServiceEvent, Supervised, type Unit } from "./supervise.ts";
import { type Output, UpError } from "./terminal.ts";

/** Expected while the launcher itself warns of the simulator and creates the first key. */
const EXPECTED_AT_START = ["no_real_model", "key_store"];
/** The same event of the same process is shown at most this often. */
const REPEAT_MS = 10_000;
const TEXT_CHARS_MAX = 300;

/** All processes of one launcher. None outlives it, even if it is killed with -9. */
export class Cluster {
  /** Whether the start is over. */
  isReady = false;
  /** One-time link that creates the first owner; null when there is one. */
  setupUrl: string | null = null;
  /** In the order in which they were started. */
  readonly #units: Supervised[] = [];
  readonly #watcher: ReturnType<typeof startWatcher>;
  readonly #shownAtMs = new Map<string, number>();
  #isStopping = false;

  /** `stateFile` is removed when the launcher dies without doing so itself. */
  constructor(
    readonly out: Output,
    readonly logsDir: string,
    stateFile: string,
  ) {
    this.#watcher = startWatcher(stateFile);
  }

  /** Starts a unit. Throws an {@link UpError} once the cluster is stopping. */
  start(unit: Unit): Supervised {
    if (this.#isStopping) throw new UpError("The cluster is stopping");
    const { out, logsDir } = this;
    const supervised = new Supervised(unit, {
      log: new LogFile(`${logsDir}/${unit.name}.log`, out.warn),
      warn: out.warn,
      onChange: () =>
        this.#watcher.watch(this.#units.flatMap(({ pid }) => pid ?? [])),
      onEvent: (event) => this.#onEvent(unit.name, event),
    });
    this.#units.push(supervised);
    return supervised;
  }

  /** The names of the units that are not ready. */
  get waiting(): string {
    return this.#units.filter(({ isReady }) => !isReady)
      .map(({ unit }) => unit.name).join(", ");
  }

  /** The members of `up.json` about processes: their pids, and where to inspect them. */
  describe() {
    const pids: Record<string, number[]> = { nats: [], redis: [] };
    const ops_urls: Record<string, string[]> = {};
    for (const { unit: { service }, pid, opsPort } of this.#units) {
      const running = pids[service] ??= [];
      if (pid !== undefined) running.push(pid);
      if (opsPort === undefined) continue;
      (ops_urls[service] ??= []).push(`http://${LOOPBACK}:${opsPort}`);
    }
    return { pids, ops_urls };
  }

  /** Stops everything in reverse order of the start, and gives each service this long. */
  async stop(graceMs: number): Promise<void> {
    this.#isStopping = true;
    const services = Map.groupBy(this.#units, ({ unit }) => unit.service);
    for (const group of [...services.values()].reverse()) {
      await Promise.all(group.map((supervised) => supervised.stop(graceMs)));
    }
    await this.#watcher.close();
  }

  /** Shows a warning or an error: `chat-worker warn: redis_slow {"took_ms":250}`. */
  #onEvent(name: string, logged: ServiceEvent): void {
    const { out } = this;
    const { time: _time, service: _service, level, event, ...data } = logged;
    if (event === "setup_link") {
      this.setupUrl = String(data.url);
      if (!this.isReady) return;
      return out.say(`Console link for the first owner: ${this.setupUrl}`);
    }
    // During a stop, services warn about those that have stopped before them.
    const isExpected = this.#isStopping
      ? level === "warn"
      : !this.isReady && EXPECTED_AT_START.includes(event);
    const kind = `${name} ${level}: ${event}`;
    const nowMs = monotonicNow();
    const shownAtMs = this.#shownAtMs.get(kind) ?? -Infinity;
    if (isExpected || nowMs - shownAtMs < REPEAT_MS) return;
    this.#shownAtMs.set(kind, nowMs);
    const details = JSON.stringify(
      data,
      (member, value) => member === "stack" ? undefined : value,
    );
    out.warn(`${kind} ${details}`.slice(0, TEXT_CHARS_MAX));
  }
}

/**
 * Ends the processes of the launcher when the launcher is killed, see `watch.sh`.
 * Each process leads its own group. All have ended when the watcher is closed.
 */
function startWatcher(stateFile: string) {
  const script = fileURLToPath(new URL("watch.sh", import.meta.url));
  const child = spawn("sh", [script, stateFile], {
    // In its own session, neither Ctrl-C nor the end of the terminal reaches it.
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  const ended = once(child, "exit");
  // A write fails if the watcher was killed; the launcher continues without it.
  child.stdin.on("error", () => {});
  return {
    watch: (pids: readonly number[]) =>
      child.stdin.write(`${pids.map((pid) => `-${pid}`).join(" ")}\n`),
    async close() {
      child.stdin.end("\n");
      await ended;
    },
  };
}
