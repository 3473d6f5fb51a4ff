/**
 * Promise: while the servers of the log choose another leader, it counts as there; only
 * a log that stays away, or was never there, does not.
 */
import assert from "node:assert/strict";
import { silentLog } from "../process/log.ts";
import { KEPT_LIMITS } from "./limits.ts";
import { StreamWatch } from "./stream_watch.ts";

/** A watch that looks when the test says that the bus was restored. */
async function startWatch({ isThere }: { isThere: boolean }) {
  const state = { isThere, nowMs: 0, look: () => {} };
  const watch = new StreamWatch({
    keptLog: {
      prepare: () =>
        state.isThere
          ? Promise.resolve()
          : Promise.reject(new Error("no leader")),
    },
    bus: {
      isConnected: true,
      onEvent: (listener) => {
        state.look = () => listener("reconnected");
      },
    },
    stream: { storage: "memory", bytesMax: 1, ageMsMax: 1 },
    now: () => state.nowMs,
    log: silentLog,
  });
  await watch.start();
  const lookAt = async (nowMs: number) => {
    state.nowMs = nowMs;
    state.look();
    await watch.stop();
  };
  return { state, watch, lookAt };
}

Deno.test("a log that is away for a moment counts as there, one that stays away does not", async () => {
  const { state, watch, lookAt } = await startWatch({ isThere: true });
  assert.equal(watch.isReady, true);
  state.isThere = false;
  await lookAt(1_000);
  await lookAt(1_000 + KEPT_LIMITS.awayMs - 1);
  assert.deepEqual([watch.isReady, watch.isThere], [true, false]);
  state.isThere = true;
  await lookAt(20_000);
  state.isThere = false;
  await lookAt(30_000);
  assert.equal(watch.isReady, true, "it was there meanwhile");
  await lookAt(30_000 + KEPT_LIMITS.awayMs);
  assert.equal(watch.isReady, false);
  state.isThere = true;
  await lookAt(50_000);
  assert.equal(watch.isReady, true);
});

Deno.test("a log that was never there does not count as there", async () => {
  const { watch, lookAt } = await startWatch({ isThere: false });
  assert.equal(watch.isReady, false);
  await lookAt(1_000);
  assert.equal(watch.isReady, false);
});
