/** What the console knows of the workers: what their servers list, and how they do. */
import assert from "node:assert/strict";
import { encodeReports } from "@gateway/shared/backends/report";
import { BackendReports } from "@gateway/shared/backends/reports";
import { DISCOVERY_LIMITS } from "@gateway/shared/bus/server_lists";
import { encodeWorkerBeat } from "@gateway/shared/bus/job";
import { subjects } from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { parseCatalog } from "@gateway/shared/models/catalog";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { silentLog } from "@gateway/shared/process/log";
import { connectTestLink } from "../../../../tests/support/servers/bus_link.ts";
import { startNatsServer } from "../../../../tests/support/servers/nats_server.ts";
import { until } from "../../../../tests/support/wait_for.ts";
import {
  followWorkers,
  WorkerFollower,
  workersReported,
} from "./worker_follower.ts";

const TICK_MS = 100;

function setup() {
  const catalog = parseCatalog({
    servers: [{ type: "openai", name: "a", base_url: "http://a/v1" }],
  });
  let nowMs = 0;
  const backends = new BackendReports(() => nowMs);
  const bus: { flowingSinceMs: number | null } = { flowingSinceMs: 0 };
  const follower = new WorkerFollower({
    bus,
    catalog,
    backends,
    now: () => nowMs,
  });
  return {
    catalog,
    bus,
    follower,
    modelIds: () => backends.read().map(({ model }) => model).join(" "),
    tell(workerId: string, model: string) {
      const [message = new Uint8Array(0)] = encodeReports("chat", [
        { model, backend: "a", preference: 0, weight: 1, state: "closed" },
      ]);
      follower.onBackendsMessage(subjects.backends(workerId), message);
    },
    offered: () => [...catalog.keys()].join(" "),
    beat(workerId: string, ids?: string[]) {
      const beat = encodeWorkerBeat({
        family: "chat",
        slots: 1,
        inFlight: 0,
        draining: false,
        models: [],
        ...ids && { listed: { a: ids } },
      });
      follower.onBeatMessage(subjects.workerBeat(workerId), beat);
    },
    wait(ms: number, onTick = () => {}) {
      for (const endMs = nowMs + ms; nowMs < endMs;) {
        nowMs += TICK_MS;
        onTick();
        follower.tick();
      }
    },
  };
}

Deno.test("the console knows what workers list, for as long as they live and a minute more", () => {
  const { beat, wait, offered, catalog } = setup();
  assert.ok(catalog.isPending);
  beat("w1", ["x", "y"]);
  assert.ok(!catalog.isPending);
  wait(10 * DISCOVERY_LIMITS.awayMs, () => beat("w1"));
  assert.equal(offered(), "x y");
  wait(DISPATCH_LIMITS.workerLostMs + TICK_MS);
  assert.ok(catalog.isAway("x"));
  wait(DISCOVERY_LIMITS.awayMs + TICK_MS);
  assert.equal(offered(), "");
});

Deno.test("an outage of the bus takes no models away, and silence counts anew after it", () => {
  const { bus, beat, wait, offered, catalog } = setup();
  beat("w1", ["x"]);
  bus.flowingSinceMs = null;
  wait(10 * DISCOVERY_LIMITS.awayMs);
  assert.equal(offered(), "x");
  bus.flowingSinceMs = 1;
  wait(DISPATCH_LIMITS.workerLostMs - TICK_MS);
  assert.ok(!catalog.isAway("x"));
  wait(2 * TICK_MS);
  assert.ok(catalog.isAway("x"));
});

Deno.test("a beat that cannot be read counts for nothing", () => {
  const { follower, catalog } = setup();
  const nonsense = new TextEncoder().encode('{"version":99}');
  follower.onBeatMessage(subjects.workerBeat("w1"), nonsense);
  assert.ok(catalog.isPending);
});

Deno.test("what a worker tells of its backends counts for as long as it lives", () => {
  const { beat, tell, wait, modelIds } = setup();
  tell("w1", "x");
  tell("w2", "y");
  wait(2_000, () => beat("w1"));
  assert.equal(modelIds(), "x");
});

Deno.test("a report that cannot be read counts for nothing, and is no sign of life", () => {
  const { follower, modelIds } = setup();
  const nonsense = new TextEncoder().encode('{"version":99}');
  follower.onBackendsMessage(subjects.backends("w1"), nonsense);
  assert.equal(modelIds(), "");
  assert.equal(follower.workers, 0);
});

Deno.test("whoever begins to follow is told at once by all workers, and later by one that starts late", async () => {
  await using nats = await startNatsServer();
  const server = [nats.server];
  await using first = await connectTestLink(server);
  await using second = await connectTestLink(server);
  await using late = await connectTestLink(server);
  startWorker(first.link, "w1");
  startWorker(second.link, "w2");
  await Promise.all([first.link.flush(), second.link.flush()]);
  const workers = followWorkers({
    access: { servers: server },
    catalog: undefined,
    log: silentLog,
  });
  try {
    await workersReported(workers);
    assert.equal(workers.backends.read()[0]?.workers, 2);
    startWorker(late.link, "w3");
    late.link.publish(subjects.backendsWanted, new Uint8Array(0));
    await until(() => workers.backends.read()[0]?.workers === 3);
  } finally {
    await workers.stop();
  }
});

Deno.test("without a bus, whoever asks is told so", async () => {
  const workers = followWorkers({
    access: { servers: ["127.0.0.1:9"] },
    catalog: undefined,
    log: silentLog,
  });
  try {
    await assert.rejects(workersReported(workers), /NATS does not answer/);
  } finally {
    await workers.stop();
  }
});

/** Tells of one backend whenever somebody wants to know. */
function startWorker(link: BusLink, workerId: string): void {
  const [report = new Uint8Array(0)] = encodeReports("chat", [
    { model: "m", backend: "a", preference: 0, weight: 1, state: "closed" },
  ]);
  link.subscribe(subjects.backendsWanted, () => {
    link.publish(subjects.backends(workerId), report);
  });
}
