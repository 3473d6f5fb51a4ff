/** The clocks of a process. */
import assert from "node:assert/strict";
import { SteadyClock } from "./clock.ts";

Deno.test("SteadyClock leaves out what a late tick is late by, and never goes back", () => {
  let realMs = 1_000;
  const clock = new SteadyClock(() => realMs);
  const rows = [
    { passMs: 50, steadyMs: 50, pauseMs: 0 },
    { passMs: 200, steadyMs: 250, pauseMs: 0 },
    { passMs: 5_000, steadyMs: 450, pauseMs: 4_800 },
    { passMs: 50, steadyMs: 500, pauseMs: 0 },
  ];
  for (const { passMs = 0, steadyMs, pauseMs } of rows) {
    realMs += passMs;
    assert.equal(clock.now(), steadyMs, "before the tick");
    assert.equal(clock.tick(), pauseMs);
    assert.equal(clock.now(), steadyMs, "after it");
  }
});
