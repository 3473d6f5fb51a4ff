/** The clocks of a process. */
import assert from "node:assert/strict";
import { SteadyClock } from "./clock.ts";

Deno.test("SteadyClock leaves out what a late tick is late by, and never goes back", () => {
  let realMs = 1_000;
  const clock = new SteadyClock(() => realMs);
  const rows = [[50, 50, 0], [200, 250, 0], [5_000, 450, 4_800], [50, 500, 0]];
  for (const [passMs = 0, steadyMs, pauseMs] of rows) {
    realMs += passMs;
    assert.equal(clock.now(), steadyMs, "before the tick");
    assert.equal(clock.tick(), pauseMs);
    assert.equal(clock.now(), steadyMs, "after it");
  }
});
