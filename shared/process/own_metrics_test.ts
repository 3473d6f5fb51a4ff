import assert from "node:assert/strict";
import { waitFor } from "../../tests/support/wait_for.ts";
import type { BusStatus } from "../bus/link.ts";
import { observeBus, observeProcess, observeRedis } from "./own_metrics.ts";
import { MetricRegistry } from "./metrics.ts";

Deno.test("observeBus() counts what happens to the bus, and shows how it stands", async () => {
  const registry = new MetricRegistry();
  const listeners: ((status: BusStatus) => void)[] = [];
  const bus = {
    isConnected: false,
    isReady: true,
    pendingBytes: 12,
    onStatus(listener: (status: BusStatus) => void) {
      listeners.push(listener);
      return () => {};
    },
  };
  observeBus(registry, bus);
  for (const listener of listeners) {
    listener({ type: "lame_duck", server: "s" });
    listener({ type: "disconnected", server: "s" });
    listener({ type: "disconnected", server: "s" });
  }
  const text = await registry.text();
  assert.match(text, /^gateway_bus_connected 0$/m);
  assert.match(text, /^gateway_bus_flowing 1$/m);
  assert.match(text, /^gateway_bus_pending_bytes 12$/m);
  assert.match(text, /\{event="disconnected"\} 2$/m);
  assert.match(text, /\{event="lame_duck"\} 1$/m);
  assert.match(text, /\{event="refused"\} 0$/m);
});

Deno.test("observeRedis() shows whether Redis answers", async () => {
  const registry = new MetricRegistry();
  let isReady = true;
  observeRedis(registry, () => isReady);
  assert.match(await registry.text(), /^gateway_redis_ready 1$/m);
  isReady = false;
  assert.match(await registry.text(), /^gateway_redis_ready 0$/m);
});

Deno.test("observeProcess() shows readiness with its reasons, and how late timers are", async () => {
  const registry = new MetricRegistry();
  let nowMs = 0;
  let reasons: string[] = [];
  const stop = observeProcess(registry, {
    // Each look at the clock finds it 80 ms later, 30 more than the timer's 50.
    now: () => nowMs += 80,
    startedAtMs: 1_500,
    notReady: () => reasons,
  });
  try {
    const text = await waitFor(async () => {
      const text = await registry.text();
      return /lag_seconds_count [1-9]/.test(text) && text;
    }, { what: "a timer" });
    assert.match(text, /^gateway_ready 1$/m);
    assert.match(text, /^gateway_start_time_seconds 1.5$/m);
    assert.match(text, /^gateway_memory_bytes\{kind="rss"\} \d{7,}$/m);
    assert.match(text, /lag_seconds_bucket\{le="0.025"\} 0$/m);
    assert.match(text, /lag_seconds_bucket\{le="0.05"\} [1-9]/m);
    reasons = ["bus", "stopping"];
    const later = await registry.text();
    assert.match(later, /^gateway_ready 0$/m);
    assert.match(later, /^gateway_not_ready\{reason="bus"\} 1$/m);
    assert.match(later, /^gateway_not_ready\{reason="stopping"\} 1$/m);
  } finally {
    stop();
  }
});
