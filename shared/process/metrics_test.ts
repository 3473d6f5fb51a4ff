/** Metrics in the text format of Prometheus. */
import assert from "node:assert/strict";
import { waitFor } from "../../tests/support/wait_for.ts";
import { counter, gauge, histogram, MetricRegistry } from "./metrics.ts";
import { observeBus, observeProcess } from "./lifecycle/ops_server.ts";

const REQUESTS = counter("gateway_requests_total", {
  help: "Requests.",
  labels: ["route", "status"],
});
const WAIT = histogram("gateway_wait_seconds", {
  help: "Waiting.",
  labels: ["model"],
  buckets: [0.1, 1],
});
const SLOTS = gauge("gateway_slots", { help: "Slots.", labels: ["state"] });
const ALL = gauge("gateway_all", { help: "Slots." });
const NAKS = counter("gateway_naks_total", { help: "Naks." });

function samples(text: string): string[] {
  return text.split("\n").filter((line) => line !== "" && line[0] !== "#");
}

Deno.test("MetricRegistry counts by label values, keeps them apart and escapes them", () => {
  const registry = new MetricRegistry();
  const { requests } = registry.record({ requests: REQUESTS, naks: NAKS });
  requests.with("a", "bc").add();
  requests.with("a", "bc").add(2);
  requests.with("ab", "c").add();
  requests.with('a"b', "c\n\\").add();
  const expected = [
    'gateway_requests_total{route="a",status="bc"} 3',
    'gateway_requests_total{route="ab",status="c"} 1',
    String.raw`gateway_requests_total{route="a\"b",status="c\n\\"} 1`,
    "gateway_naks_total 0",
  ];
  assert.deepEqual(samples(registry.text()), expected);
  // Looking twice must not count twice.
  assert.deepEqual(samples(registry.text()), expected);
});

Deno.test("MetricRegistry writes sums of fractions without the noise of additions", () => {
  const registry = new MetricRegistry();
  const { cost } = registry.record({
    cost: counter("cost_total", { help: "" }),
  });
  for (let n = 0; n < 3; n += 1) cost.add(0.1);
  assert.match(registry.text(), /^cost_total 0\.3$/m);
  cost.add(9_007_199_254_740_000);
  assert.match(registry.text(), /^cost_total 9007199254740000$/m);
});

Deno.test("MetricRegistry writes a histogram with rising buckets, sum and count", () => {
  const registry = new MetricRegistry();
  const wait = registry.record({ WAIT }).WAIT.with("m");
  for (const ms of [50, 100, 500, 3_000]) wait.observeMs(ms);
  const text = registry.text();
  assert.deepEqual(samples(text), [
    'gateway_wait_seconds_bucket{model="m",le="0.1"} 2',
    'gateway_wait_seconds_bucket{model="m",le="1"} 3',
    'gateway_wait_seconds_bucket{model="m",le="+Inf"} 4',
    'gateway_wait_seconds_sum{model="m"} 3.65',
    'gateway_wait_seconds_count{model="m"} 4',
  ]);
  assert.match(text, /^# TYPE gateway_wait_seconds histogram$/m);
});

Deno.test("MetricRegistry asks for gauges when somebody looks", () => {
  const registry = new MetricRegistry();
  let used = 1;
  registry.gauge(SLOTS, () => [[["used"], used], [["free"], 9 - used]]);
  registry.gauge(ALL, () => 9);
  assert.deepEqual(samples(registry.text()), [
    'gateway_slots{state="used"} 1',
    'gateway_slots{state="free"} 8',
    "gateway_all 9",
  ]);
  used = 4;
  assert.match(registry.text(), /\{state="used"\} 4/);
});

Deno.test("observeBus() counts what happens to the bus, and shows how it stands", () => {
  const registry = new MetricRegistry();
  let listen = (_event: string) => {};
  observeBus(registry, {
    isConnected: false,
    isReady: true,
    pendingBytes: 12,
    onEvent(listener) {
      listen = listener;
    },
  });
  for (const event of ["lame_duck", "disconnected", "disconnected"]) {
    listen(event);
  }
  const text = registry.text();
  assert.match(text, /^gateway_bus_connected 0$/m);
  assert.match(text, /^gateway_bus_flowing 1$/m);
  assert.match(text, /^gateway_bus_pending_bytes 12$/m);
  assert.match(text, /\{event="disconnected"\} 2$/m);
  assert.match(text, /\{event="lame_duck"\} 1$/m);
  assert.match(text, /\{event="refused"\} 0$/m);
});

Deno.test("observeProcess() shows readiness with its reasons, and how late timers are", async () => {
  const registry = new MetricRegistry();
  let nowMs = 0;
  let reasons: string[] = [];
  // Each look at the clock finds it 80 ms later, 30 more than the timer's 50.
  const now = () => {
    nowMs += 80;
    return nowMs;
  };
  const stop = observeProcess(registry, () => reasons, now);
  try {
    const text = await waitFor(() => {
      const text = registry.text();
      return /lag_seconds_count [1-9]/.test(text) && text;
    }, { what: "a timer" });
    assert.match(text, /^gateway_ready 1$/m);
    assert.match(text, /^gateway_start_time_seconds \d{10}\b/m);
    assert.match(text, /^gateway_memory_bytes\{kind="rss"\} \d{7,}$/m);
    assert.match(text, /lag_seconds_bucket\{le="0.025"\} 0$/m);
    assert.match(text, /lag_seconds_bucket\{le="0.05"\} [1-9]/m);
    reasons = ["bus", "stopping"];
    const later = registry.text();
    assert.match(later, /^gateway_ready 0$/m);
    assert.match(later, /^gateway_not_ready\{reason="bus"\} 1$/m);
    assert.match(later, /^gateway_not_ready\{reason="stopping"\} 1$/m);
  } finally {
    stop();
  }
});
