import type { MonotonicNow } from "@gateway/shared/process/clock";
import { type Child, type Program, spawnChild } from "./child.ts";
import {
  describeDeath,
  type Ending,
  NOT_STARTED,
  startError,
} from "./ending.ts";
import type { ProcessKind } from "./guardian.ts";
import type { LogFile } from "./log_file.ts";
import type { ServiceEvent } from "./service_event.ts";
import { EXIT, messageOf, UpError } from "./up_error.ts";
import { sleep } from "./wait.ts";

/** What the parts of a cluster are called, also in `up.json`. */
export type ServiceName =
  | "edge-auth"
  | "chat-worker"
  | "key-admin"
  | "nats"
  | "redis";

/** One process to keep running. */
export interface Unit {
  /** Unique, for example `chat-worker-2`. */
  name: string;
  /** What it is an instance of. */
  service: ServiceName;
  kind: ProcessKind;
  /** Called for each start, so that a restart can keep the port of the first. */
  program(): Program;
  /** Part of its command line that no other program has. */
  marker(): string;
  /** True once it serves. Absent: it says so itself with the event `ready`. */
  probe?: () => Promise<boolean>;
  /** How long a start may take. */
  readyMs: number;
}

/** The ports of a service's `ready` event; 0 where it names none. */
export interface Ready {
  port: number;
  opsPort: number;
}

export interface SuperviseDeps {
  now: MonotonicNow;
  log: LogFile;
  /** Told of each process that begins. */
  onStart(pid: number): void;
  onEnd(pid: number): void;
  /** Something the operator should know: a death, a restart, a return. */
  notice(text: string): void;
  onEvent(event: ServiceEvent): void;
  /** Deno is downloading the service's packages. */
  onDownload(): void;
  /** It is ready, for the first time or again. */
  onReady(ready: Ready): void;
}

export interface StopOptions {
  /** Patience between SIGTERM and SIGKILL. */
  graceMs: number;
  /** Ends the patience. */
  hurry: AbortSignal;
}

/** A unit under supervision. */
export interface Supervised {
  readonly unit: Unit;
  /** Resolves with the first `ready`; rejects with an {@link UpError} when it keeps dying before that. */
  readonly firstReady: Promise<Ready>;
  /** Of the process that runs now, if one does. */
  pid(): number | undefined;
  /** Stops it for good and resolves when it has ended. */
  stop(options: StopOptions): Promise<void>;
}

/** A start that fails this often in a row is given up, before the first success. */
const START_ATTEMPTS_MAX = 3;
const RESTART_MS_MIN = 200;
const RESTART_MS_MAX = 10_000;
/** After this long a process counts as healthy, and its next death as the first. */
const HEALTHY_MS = 30_000;
const PROBE_EVERY_MS = 15;

/** Starts a unit and restarts it when it dies, with growing pauses. */
export function supervise(unit: Unit, deps: SuperviseDeps): Supervised {
  const stopping = new AbortController();
  const firstReady = Promise.withResolvers<Ready>();
  // Nobody may be waiting any more when it fails; the rejection must not be fatal then.
  firstReady.promise.catch(() => {});
  let child: Child | undefined;
  let wasReady = false;

  const runOnce = async (): Promise<Ending> => {
    const ready = Promise.withResolvers<Ready>();
    let deadline = deps.now() + unit.readyMs;
    child = spawnChild(unit.program(), {
      log: deps.log,
      onEvent: (event) => {
        if (event.event === "ready") ready.resolve(readPorts(event));
        else deps.onEvent(event);
      },
      onErrorLine: (line) => {
        if (!line.startsWith("Download ")) return;
        deadline = deps.now() + unit.readyMs;
        deps.onDownload();
      },
    });
    const running = child;
    deps.onStart(running.pid);
    const over = new AbortController();
    const exited = running.exited.finally(() => over.abort());
    const awaitReady = unit.probe
      ? probeUntilReady(unit.probe, over.signal)
      : ready.promise;
    const first = await Promise.race([
      awaitReady,
      exited.then(() => undefined),
      waitUntil(() => deadline, deps.now, over.signal),
    ]);
    const isReady = first !== undefined && first !== "late";
    const readyAt = deps.now();
    if (isReady) {
      if (wasReady) deps.notice(`${unit.name} is back (pid ${running.pid})`);
      wasReady = true;
      deps.onReady(first);
      firstReady.resolve(first);
    } else if (first === "late" && !stopping.signal.aborted) {
      running.signal("SIGKILL");
    }
    const exit = await exited;
    child = undefined;
    deps.onEnd(running.pid);
    return {
      exit,
      isLate: first === "late",
      isHealthy: isReady && deps.now() - readyAt >= HEALTHY_MS,
      tail: running.tail(),
    };
  };

  const runOnceOrFail = async (): Promise<Ending> => {
    try {
      return await runOnce();
    } catch (error) {
      // The program itself cannot be started: gone, not executable, no memory.
      return { ...NOT_STARTED, tail: [messageOf(error)] };
    }
  };

  const keepRunning = async () => {
    let failures = 0;
    while (!stopping.signal.aborted) {
      const ending = await runOnceOrFail();
      if (stopping.signal.aborted) break;
      failures = ending.isHealthy ? 1 : failures + 1;
      const isHopeless = ending.exit.code === EXIT.config ||
        failures >= START_ATTEMPTS_MAX;
      if (!wasReady && isHopeless) {
        firstReady.reject(startError(unit, ending, deps.log.path));
        return;
      }
      const pauseMs = Math.min(
        RESTART_MS_MIN * 2 ** (failures - 1),
        RESTART_MS_MAX,
      );
      deps.notice(describeDeath(unit, ending, pauseMs));
      await sleep(pauseMs, stopping.signal);
    }
    firstReady.reject(new UpError(`${unit.name} was stopped`));
  };
  const finished = keepRunning();

  const stop = async ({ graceMs, hurry }: StopOptions) => {
    stopping.abort();
    const running = child;
    if (running) {
      running.signal("SIGTERM");
      // A frozen process would get the first signal only when it is thawed.
      running.signal("SIGCONT");
      const over = new AbortController();
      const ended = running.exited.finally(() => over.abort());
      await Promise.race([
        ended,
        sleep(graceMs, AbortSignal.any([hurry, over.signal])),
      ]);
      over.abort();
      running.signal("SIGKILL");
    }
    await finished;
  };

  return { unit, firstReady: firstReady.promise, pid: () => child?.pid, stop };
}

function readPorts({ fields }: ServiceEvent): Ready {
  const port = typeof fields.port === "number" ? fields.port : 0;
  const opsPort = typeof fields.opsPort === "number" ? fields.opsPort : 0;
  return { port, opsPort };
}

async function probeUntilReady(
  probe: () => Promise<boolean>,
  over: AbortSignal,
): Promise<Ready | undefined> {
  while (!over.aborted) {
    if (await probe()) return { port: 0, opsPort: 0 };
    await sleep(PROBE_EVERY_MS, over);
  }
  return undefined;
}

/** Resolves with "late" at the deadline, which may move meanwhile. */
async function waitUntil(
  deadline: () => number,
  now: MonotonicNow,
  over: AbortSignal,
): Promise<"late" | undefined> {
  while (!over.aborted) {
    const leftMs = deadline() - now();
    if (leftMs <= 0) return "late";
    await sleep(leftMs, over);
  }
  return undefined;
}
