import assert from "node:assert/strict";
import { createRecordingLog } from "../../tests/support/recording_log.ts";
import { sleep, waitFor } from "../../tests/support/wait_for.ts";
import type { BusStatus } from "./link.ts";
import { LinkState } from "./link_state.ts";
import { createThrottle } from "./link_throttle.ts";

function createState(staleEndMs: number) {
  const calls: string[] = [];
  const statuses: BusStatus[] = [];
  const log = createRecordingLog();
  let nowMs = 0;
  const state = new LinkState({
    server: "a:1",
    staleEndMs,
    log,
    now: () => nowMs,
    onLost: () => calls.push("lost"),
    onStuck: () => calls.push("stuck"),
    onRefused: (operation, subject) => calls.push(`${operation} ${subject}`),
  });
  state.onStatus((status) => statuses.push(status));
  return { state, calls, statuses, log, advance: (ms: number) => nowMs += ms };
}

Deno.test("LinkState tells one loss and one return, however often the client says so", () => {
  const { state, calls, statuses, advance } = createState(60_000);
  state.handle({ type: "staleConnection" });
  assert.equal(state.isLost, true);
  state.handle({ type: "disconnect", server: "a:1" });
  state.handle({ type: "disconnect", server: "b:1" });
  advance(250);
  state.handle({ type: "reconnect", server: "b:1" });
  state.handle({ type: "reconnect", server: "b:1" });
  assert.equal(state.isLost, false);
  state.handle({ type: "disconnect", server: "b:1" });
  assert.deepEqual(calls, ["lost", "lost"]);
  assert.deepEqual(statuses, [
    { type: "disconnected", server: "a:1" },
    { type: "reconnected", server: "b:1", outageMs: 250 },
    { type: "disconnected", server: "b:1" },
  ]);
});

Deno.test("LinkState reports a client that does not leave a stale connection", async () => {
  const { state, calls } = createState(1);
  state.handle({ type: "staleConnection" });
  await waitFor(() => calls.includes("stuck"), { what: "the report" });
});

Deno.test("LinkState expects no end of a connection that is gone already", async () => {
  const { state, calls } = createState(1);
  state.handle({ type: "disconnect", server: "a:1" });
  state.handle({ type: "staleConnection" });
  await sleep(20);
  assert.deepEqual(calls, ["lost"]);
});

Deno.test("a status listener that throws is logged and stops no other", () => {
  const { state, statuses, log } = createState(60_000);
  state.onStatus(() => {
    throw new Error("a bug");
  });
  const late: BusStatus[] = [];
  const stopListening = state.onStatus((status) => late.push(status));
  state.handle({ type: "ldm", server: "a:1" });
  stopListening();
  state.handle({ type: "ldm", server: "a:1" });
  assert.equal(statuses.length, 2);
  assert.equal(late.length, 1);
  assert.match(String(log.find("bus_listener_failed")?.["error"]), /a bug/);
});

Deno.test("a throttle lets one line through per interval and counts the others", () => {
  let nowMs = 1_000;
  const mayLog = createThrottle(() => nowMs, 100);
  assert.deepEqual([mayLog(), mayLog(), mayLog()], [0, undefined, undefined]);
  nowMs += 99;
  assert.equal(mayLog(), undefined);
  nowMs += 1;
  assert.equal(mayLog(), 3);
  nowMs += 100;
  assert.equal(mayLog(), 0);
});
