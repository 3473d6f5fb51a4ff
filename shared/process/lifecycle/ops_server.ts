/**
 * Health, readiness and metrics of a service, on a separate port that is never public.
 */
import { VERSION } from "../../version.ts";
import { type MonotonicNow, monotonicNow, wallNow } from "../clock.ts";
import { counter, gauge, histogram, type MetricRegistry } from "../metrics.ts";
import { serve } from "./serve.ts";

/** The metrics that every process has; {@link serveOps} records them. */
export const PROCESS_METRICS = {
  buildInfo: gauge("gateway_build_info", {
    help:
      "Always 1. `version` of the product, `revision`: the commit of its image (empty if unknown), `deno`: the version of Deno.",
    labels: ["version", "revision", "deno"],
  }),
  ready: gauge("gateway_ready", {
    help:
      "1 while the service can do all of its work, else 0: connected, and not stopping. An edge is then ready according to `/readyz` all the same.",
  }),
  notReady: gauge("gateway_not_ready", {
    help:
      "1 for each reason why the service cannot do all of its work: `bus`, `redis`, `stopping`.",
    labels: ["reason"],
  }),
  startTime: gauge("gateway_start_time_seconds", {
    help: "When the process started, in Unix time.",
  }),
  memory: gauge("gateway_memory_bytes", {
    help: "Memory of the process. `rss`: as seen by the operating system.",
    labels: ["kind"],
  }),
  eventLoopLag: histogram("gateway_event_loop_lag_seconds", {
    help: "Delay of a timer that is due every 50 ms.",
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5],
  }),
};

const BUS_EVENTS = [
  "disconnected",
  "reconnected",
  "lame_duck",
  "refused",
  "error",
];

/** The metrics of a process that is connected to NATS. */
export const BUS_METRICS = {
  busConnected: gauge("gateway_bus_connected", {
    help: "1 while connected to NATS, else 0.",
  }),
  busFlowing: gauge("gateway_bus_flowing", {
    help:
      "1 while messages of the process to itself through NATS arrive in time, else 0.",
  }),
  busPending: gauge("gateway_bus_pending_bytes", {
    help: "Bytes published to NATS that have not left the process yet.",
  }),
  busEvents: counter("gateway_bus_events_total", {
    help:
      "Events of the connection: `disconnected`, `reconnected`, `lame_duck`, `refused` (a permission is missing), `error`.",
    labels: ["event"],
    zeros: BUS_EVENTS.map((event) => [event]),
  }),
};

/** The metrics of a process that is connected to Redis. */
export const REDIS_METRICS = {
  redisReady: gauge("gateway_redis_ready", {
    help: "1 while Redis is available, else 0.",
  }),
};

const LAG_INTERVAL_MS = 50;
const TEXT = "text/plain; charset=utf-8";
const PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8";

/** What the operations port needs of the connection to NATS. */
export interface ObservedBus {
  readonly isConnected: boolean;
  /** Whether messages of the process to itself arrive in time. */
  readonly isReady: boolean;
  /** What was published and has not left the process yet. */
  readonly pendingBytes: number;
  onEvent(listener: (event: string) => void): unknown;
}

/** The connections of a service, without which it cannot do its work. */
export interface Connections {
  bus?: ObservedBus;
  redis?: readonly { readonly state: string }[];
  /**
   * Whether it is ready without them, too, because it answers in any case, if only with
   * an error: a load balancer that took it away would answer worse. Default false.
   */
  answersWithout?: boolean;
}

/** What {@link serveOps} shows, and where. */
export interface OpsOptions extends Connections {
  hostname: string;
  /** 0 for any free port. */
  port: number;
  registry: MetricRegistry;
  /** Whether the service drains, so that it is not ready any more. */
  isStopping: () => boolean;
}

/**
 * Serves `/healthz`, `/readyz` and `/metrics`: those of the service, and those of its
 * process and connections. It is ready when its connections are, unless it answers
 * without them, until it stops. Returns the port; it ends with the process.
 */
export function serveOps(
  { registry, bus, redis = [], isStopping, ...options }: OpsOptions,
): number {
  const { hostname, port, answersWithout = false } = options;
  const isRedisReady = () => redis.every(({ state }) => state === "ready");
  const missing = () => [
    ...(bus?.isReady === false ? ["bus"] : []),
    ...(isRedisReady() ? [] : ["redis"]),
    ...(isStopping() ? ["stopping"] : []),
  ];
  const isReady = () => answersWithout ? !isStopping() : missing().length === 0;
  observeProcess(registry, missing);
  if (bus !== undefined) observeBus(registry, bus);
  if (redis.length > 0) registry.gauge(REDIS_METRICS.redisReady, isRedisReady);
  return serve({
    hostname,
    port,
    onError: () => text("fault", 500),
    handler: (request) => {
      const { pathname } = new URL(request.url);
      if (pathname === "/healthz") return text(`ok ${VERSION}`);
      if (pathname === "/metrics") {
        return text(registry.text(), 200, PROMETHEUS);
      }
      if (pathname !== "/readyz") return text("not found", 404);
      const reasons = missing().join(", ");
      if (!isReady()) return text(`not ready: ${reasons}`, 503);
      return text(reasons === "" ? "ready" : `ready, but without: ${reasons}`);
    },
  }).port;
}

function text(lines: string, status = 200, type = TEXT): Response {
  const headers = { "content-type": type };
  return new Response(`${lines}\n`, { status, headers });
}

/**
 * Exports {@link PROCESS_METRICS}. Returns a function that stops the measurement of the
 * event loop.
 */
export function observeProcess(
  registry: MetricRegistry,
  notReady: () => readonly string[],
  now: MonotonicNow = monotonicNow,
): () => void {
  const table = PROCESS_METRICS;
  const startedAtMs = wallNow();
  const [version = "", revision = ""] = VERSION.split("+");
  const build = [version, revision, Deno.version.deno];
  registry.gauge(table.buildInfo, () => [[build, 1]]);
  registry.gauge(table.ready, () => notReady().length === 0);
  registry.gauge(table.notReady, () => notReady().map((why) => [[why], 1]));
  registry.gauge(table.startTime, () => startedAtMs / 1_000);
  registry.gauge(table.memory, () => {
    const { rss, heapUsed, external } = Deno.memoryUsage();
    const kinds = { rss, heap_used: heapUsed, external };
    return Object.entries(kinds).map(([kind, bytes]) => [[kind], bytes]);
  });
  const { eventLoopLag: lag } = registry.record(table);
  let dueAtMs = now() + LAG_INTERVAL_MS;
  const timer = setInterval(() => {
    const nowMs = now();
    lag.observeMs(Math.max(0, nowMs - dueAtMs));
    dueAtMs = nowMs + LAG_INTERVAL_MS;
  }, LAG_INTERVAL_MS);
  return () => clearInterval(timer);
}

/** Exports {@link BUS_METRICS}, as long as the process lives. */
export function observeBus(registry: MetricRegistry, bus: ObservedBus): void {
  const { busConnected, busFlowing, busPending } = BUS_METRICS;
  registry.gauge(busConnected, () => bus.isConnected);
  registry.gauge(busFlowing, () => bus.isReady);
  registry.gauge(busPending, () => bus.pendingBytes);
  const { busEvents: events } = registry.record(BUS_METRICS);
  bus.onEvent((event) => events.with(event).add());
}
