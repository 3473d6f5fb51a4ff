/** What the console knows of the models that servers list. */
import assert from "node:assert/strict";
import { DISCOVERY_LIMITS } from "@gateway/shared/bus/server_lists";
import { encodeWorkerBeat } from "@gateway/shared/bus/job";
import { subjects } from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { ListFollower } from "./list_follower.ts";

const TICK_MS = 100;

function setup() {
  const catalog = parseCatalog({
    servers: [{ type: "openai", name: "a", base_url: "http://a/v1" }],
  });
  let nowMs = 0;
  const bus: { flowingSinceMs: number | null } = { flowingSinceMs: 0 };
  const follower = new ListFollower({ bus, catalog, now: () => nowMs });
  return {
    catalog,
    bus,
    follower,
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
