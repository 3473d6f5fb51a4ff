/** Which time an edge expects Redis to show. */
import assert from "node:assert/strict";
import { ServerClock } from "./server_clock.ts";

const SERVER_MS = 1_764_000_000_000;

/** A clock, and what the server's shows, which may jump. */
function setup() {
  const state = { nowMs: 1_000, aheadMs: 0 };
  const clock = new ServerClock(() => state.nowMs);
  const serverMs = () => SERVER_MS + state.nowMs + state.aheadMs;
  return {
    state,
    clock,
    serverMs,
    /** How far the expected time is behind the server's. */
    behindMs: () => serverMs() - (clock.expectedMs ?? assert.fail()),
    saw: () => clock.saw(serverMs()),
  };
}

Deno.test("ServerClock expects nothing before the first reply, then what its own clock says", () => {
  const t = setup();
  assert.equal(t.clock.expectedMs, null);
  t.saw();
  t.state.nowMs += 3_600_000;
  assert.equal(t.clock.expectedMs, t.serverMs());
});

Deno.test("ServerClock doubts a jump forward for 15 to 30 s", () => {
  const t = setup();
  t.saw();
  t.state.aheadMs = 40_000;
  for (let s = 0; s <= 30; s += 1) {
    if (s < 15) assert.equal(t.behindMs(), 40_000, `after ${s} s`);
    t.saw();
    t.state.nowMs += 1_000;
  }
  t.saw();
  assert.equal(t.behindMs(), 0);
});

Deno.test("ServerClock believes a jump back at once", () => {
  const t = setup();
  t.saw();
  t.state.aheadMs = -40_000;
  t.saw();
  assert.equal(t.behindMs(), 0);
});
