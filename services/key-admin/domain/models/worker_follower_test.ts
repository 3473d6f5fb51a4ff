/** What the console knows of the workers: what their servers list, and how they do. */
import assert from "node:assert/strict";
import { encodeReports } from "@gateway/shared/backends/report";
import { BackendReports } from "@gateway/shared/backends/reports";
import { DISCOVERY_LIMITS } from "@gateway/shared/bus/server_lists";
import { encodeWorkerBeat } from "@gateway/shared/bus/job";
import { subjects } from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { WorkerFollower } from "./worker_follower.ts";

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
    told: () => backends.read().map(({ model }) => model).join(" "),
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
  const { beat, tell, wait, told } = setup();
  tell("w1", "x");
  tell("w2", "y");
  wait(2_000, () => beat("w1"));
  assert.equal(told(), "x");
});

Deno.test("a report that cannot be read counts for nothing, and is no sign of life", () => {
  const { follower, told } = setup();
  const nonsense = new TextEncoder().encode('{"version":99}');
  follower.onBackendsMessage(subjects.backends("w1"), nonsense);
  assert.equal(told(), "");
  assert.equal(follower.workers, 0);
});
