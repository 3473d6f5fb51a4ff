import { spawn } from "node:child_process";
import { once } from "node:events";
import { LogFile } from "./files.ts";
import { ROOT } from "./options.ts";
import { LOOPBACK } from "./ports.ts";
import { type ServiceEvent, Supervised, type Unit } from "./supervise.ts";
import { type Output, UpError } from "./terminal.ts";

/** Expected while the launcher itself warns of the simulator and creates the first key. */
const EXPECTED_AT_START = ["no_real_model", "key_store"];
const TEXT_CHARS_MAX = 300;

/** All processes of one launcher. None outlives it, even if it is killed with -9. */
export class Cluster {
  isReady = false;
  /** One-time link that creates the first owner; null when there is one. */
  setupUrl: string | null = null;
  /** In the order in which they were started. */
  readonly #units: Supervised[] = [];
  /** Ends the processes when the launcher is killed. Only the launcher holds its standard input. */
  readonly #watcher;
  readonly #watcherEnded: Promise<unknown>;
  #isStopping = false;

  /** `stateFile` is removed when the launcher dies without doing so itself. */
  constructor(
    readonly out: Output,
    readonly logsDir: string,
    stateFile: string,
  ) {
    // In its own session, neither Ctrl-C nor the end of the terminal reaches it.
    this.#watcher = spawn("sh", [`${ROOT}/deploy/up/watch.sh`, stateFile], {
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
    });
    this.#watcherEnded = once(this.#watcher, "exit");
    // A write fails if the watcher was killed; the launcher continues without it.
    this.#watcher.stdin.on("error", () => {});
  }

  /** Resolves when it is ready; rejects with an {@link UpError} when it ends before or the cluster is stopping. */
  async start(unit: Unit): Promise<void> {
    if (this.#isStopping) throw new UpError("The cluster is stopping");
    const { warn } = this.out;
    const supervised = new Supervised(
      unit,
      new LogFile(`${this.logsDir}/${unit.name}.log`, warn),
      warn,
      // Each process leads a group of its own.
      () => {
        const groups = this.#units.flatMap(({ pid }) => pid ? `-${pid}` : []);
        this.#watcher.stdin.write(`${groups.join(" ")}\n`);
      },
      (event) => this.#onEvent(unit.name, event),
    );
    this.#units.push(supervised);
    await supervised.firstReady;
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
    // No group is left that the watcher could end.
    this.#watcher.stdin.end("\n");
    await this.#watcherEnded;
  }

  /** Shows a warning or an error: `chat-worker warn: woke_up: This process stood still… {"stalledMs":250}`. */
  #onEvent(name: string, logged: ServiceEvent): void {
    const { out } = this;
    const { time: _time, service: _service, ...rest } = logged;
    const { level, event, message, ...data } = rest;
    if (event === "setup_link") {
      this.setupUrl = String(data.url);
      if (!this.isReady) return;
      return out.say(`Console link for the first owner: ${this.setupUrl}`);
    }
    // During a stop, services warn about those that have stopped before them.
    const isExpected = this.#isStopping
      ? level === "warn"
      : !this.isReady && EXPECTED_AT_START.includes(event);
    if (isExpected) return;
    const kind = `${name} ${level}: ${event}`;
    const details = JSON.stringify(
      data,
      (member, value) => member === "stack" ? undefined : value,
    );
    const said = message === undefined ? kind : `${kind}: ${message}`;
    out.warn(`${said} ${details}`.slice(0, TEXT_CHARS_MAX), kind);
  }
}
