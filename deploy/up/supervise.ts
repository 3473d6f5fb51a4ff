import type { MonotonicNow } from "@gateway/shared/process/clock";
import {
  type Child,
  type Exit,
  findEvents,
  type Program,
  type ServiceEvent,
  spawnChild,
} from "./child.ts";
import type { LogFile } from "./files.ts";
import { EXIT, messageOf, UpError } from "./up_error.ts";
import { sleep } from "./wait.ts";

/** What the parts of a cluster are called, also in `up.json`. */
export type ServiceName =
  | "edge-auth"
  | "chat-worker"
  | "key-admin"
  | "model-simulator"
  | "nats"
  | "redis";

/** One process to keep running. */
export interface Unit {
  /** Unique, for example `chat-worker-2`. */
  name: string;
  service: ServiceName;
  /** Called for each start, so that a restart can keep the port of the first. */
  program(): Program;
  /** Its output says this once it serves. Absent: it logs the event `ready`. */
  readyText?: string;
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
  /** A process of this unit began, ended or became ready. */
  onChange(): void;
  /** Something the operator should know: a death, a restart. */
  warn(text: string): void;
  /** Every event but `ready`. */
  onEvent(event: ServiceEvent): void;
  /** Deno downloads packages, which may take its time. */
  onDownload(): void;
}

/** A unit under supervision. */
export interface Supervised {
  readonly unit: Unit;
  /** Resolves when it is ready for the first time; rejects with an {@link UpError} when it keeps dying before that. */
  readonly firstReady: Promise<Ready>;
  /** Of the process that runs now, if one does. */
  pid(): number | undefined;
  /** Of the last process that became ready. */
  ready(): Ready | undefined;
  /** Stops it for good: SIGTERM, and SIGKILL after `graceMs` or when `hurry` aborts. */
  stop(graceMs: number, hurry?: AbortSignal): Promise<void>;
}

/** A first start that fails this often is given up. */
const START_ATTEMPTS_MAX = 3;
const RESTART_MS_MIN = 200;
const RESTART_MS_MAX = 10_000;
/** After this long a process counts as healthy, and its next death as the first. */
const HEALTHY_MS = 30_000;

/** How one run of a unit went. */
interface Ending {
  exit: Exit;
  /** It was killed because it was not ready in time. */
  isLate: boolean;
  isHealthy: boolean;
  tail: string[];
}

/** Starts a unit and restarts it when it dies, with growing pauses. */
export function supervise(unit: Unit, deps: SuperviseDeps): Supervised {
  const stopping = new AbortController();
  const firstReady = Promise.withResolvers<Ready>();
  // Nobody may be waiting any more when it fails.
  firstReady.promise.catch(() => {});
  let child: Child | undefined;
  let ready: Ready | undefined;

  const runOnce = async (): Promise<Ending> => {
    let readyAtMs = Infinity;
    let isLate = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const giveTime = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        isLate = true;
        child?.signal("SIGKILL");
      }, unit.readyMs);
    };
    const onReady = (ports: Ready) => {
      clearTimeout(timer);
      readyAtMs = deps.now();
      if (ready) deps.warn(`${unit.name} is back (pid ${running.pid})`);
      ready = ports;
      firstReady.resolve(ports);
      deps.onChange();
    };
    const onLines = (lines: string) => {
      const isStarting = readyAtMs === Infinity;
      if (unit.readyText !== undefined) {
        if (isStarting && lines.includes(unit.readyText)) {
          onReady({ port: 0, opsPort: 0 });
        }
        return;
      }
      for (const event of findEvents(lines)) {
        if (event.event === "ready") onReady(portsOf(event));
        else deps.onEvent(event);
      }
      if (isStarting && lines.startsWith("Download ")) {
        giveTime();
        deps.onDownload();
      }
    };
    const running = spawnChild(unit.program(), { log: deps.log, onLines });
    child = running;
    giveTime();
    deps.onChange();
    const exit = await running.exited;
    clearTimeout(timer);
    child = undefined;
    deps.onChange();
    const isHealthy = deps.now() - readyAtMs >= HEALTHY_MS;
    return { exit, isLate, isHealthy, tail: running.tail() };
  };

  const keepRunning = async () => {
    for (let failures = 1; !stopping.signal.aborted; failures++) {
      const ending = await runOnce().catch((error): Ending => ({
        // The program itself cannot be started: gone, not executable, no memory.
        exit: { code: 127, signal: null },
        isLate: false,
        isHealthy: false,
        tail: [messageOf(error)],
      }));
      if (stopping.signal.aborted) break;
      if (ending.isHealthy) failures = 1;
      const isHopeless = ending.exit.code === EXIT.config ||
        failures >= START_ATTEMPTS_MAX;
      if (!ready && isHopeless) {
        firstReady.reject(startError(unit, ending, deps.log.path));
        return;
      }
      const pauseMs = Math.min(
        RESTART_MS_MIN * 2 ** (failures - 1),
        RESTART_MS_MAX,
      );
      // One that was killed did not see it coming: its last line is about something else.
      const last = ending.exit.signal ? undefined : ending.tail.at(-1);
      deps.warn(
        `${unit.name} ${describeEnding(unit, ending)}, starting it again in ` +
          `${pauseMs / 1_000} s${last === undefined ? "" : `: ${last}`}`,
      );
      await sleep(pauseMs, stopping.signal);
    }
    firstReady.reject(new UpError(`${unit.name} was stopped`));
  };
  // Not before the caller has what this returns.
  const finished = Promise.resolve().then(keepRunning);

  return {
    unit,
    firstReady: firstReady.promise,
    pid: () => child?.pid,
    ready: () => ready,
    async stop(graceMs, hurry) {
      stopping.abort();
      child?.signal("SIGTERM");
      // A frozen process gets SIGTERM only when it is thawed.
      child?.signal("SIGCONT");
      const over = new AbortController();
      const patience = AbortSignal.any([
        over.signal,
        ...hurry === undefined ? [] : [hurry],
      ]);
      await Promise.race([finished, sleep(graceMs, patience)]);
      over.abort();
      child?.signal("SIGKILL");
      await finished;
    },
  };
}

function portsOf({ fields: { port, opsPort } }: ServiceEvent): Ready {
  return {
    port: typeof port === "number" ? port : 0,
    opsPort: typeof opsPort === "number" ? opsPort : 0,
  };
}

function describeEnding(
  { readyMs }: Unit,
  { exit, isLate }: Ending,
): string {
  if (isLate) return `was not ready after ${readyMs / 1_000} s`;
  if (exit.signal) return `was ended by ${exit.signal}`;
  return `ended with exit code ${exit.code}`;
}

/** A start that is given up, with the last output of the process. */
function startError(unit: Unit, ending: Ending, logPath: string): UpError {
  const isConfig = ending.exit.code === EXIT.config;
  const what = isConfig
    ? `${unit.name} found a mistake in its configuration`
    : `${unit.name} does not start: it ${describeEnding(unit, ending)}`;
  const lines = ending.tail.map((line) => `  ${line}`);
  return new UpError(
    [what, ...lines, `Its log: ${logPath}`].join("\n"),
    isConfig ? EXIT.config : EXIT.failed,
  );
}
