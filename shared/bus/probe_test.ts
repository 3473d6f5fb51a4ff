import assert from "node:assert/strict";
import { waitFor } from "../../tests/support/wait_for.ts";
import { startBusProbe } from "./probe.ts";

Deno.test("startBusProbe() takes two failures in a row for a bus that does not flow", async () => {
  const answers = [true, false, true, false, false];
  const seen: boolean[] = [];
  let probes = 0;
  const probe = startBusProbe({
    bus: {
      isConnected: true,
      probe() {
        seen.push(probe.isFlowing);
        probes += 1;
        return Promise.resolve(answers[probes - 1] ?? true);
      },
    },
    intervalMs: 1,
  });
  try {
    await waitFor(() => probes > answers.length + 1 || undefined, {
      what: "the probes",
    });
  } finally {
    probe.stop();
  }
  // What was known before each probe: only after the fifth it was bad, then good again.
  assert.deepEqual(seen.slice(0, 7), [
    true,
    true,
    true,
    true,
    true,
    false,
    true,
  ]);
});

Deno.test("startBusProbe() counts a probe that throws as failed", async () => {
  const probe = startBusProbe({
    bus: { isConnected: true, probe: () => Promise.reject(new Error("no")) },
    intervalMs: 1,
  });
  try {
    await waitFor(() => !probe.isFlowing || undefined, { what: "a failure" });
  } finally {
    probe.stop();
  }
});

Deno.test("startBusProbe() knows without a probe that a lost bus does not flow", () => {
  const probe = startBusProbe({
    bus: { isConnected: false, probe: () => Promise.resolve(true) },
  });
  assert.equal(probe.isFlowing, false);
  probe.stop();
});
