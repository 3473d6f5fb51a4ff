import assert from "node:assert/strict";
import { CounterCell, HistogramCell } from "./metrics.ts";
import { MetricRegistry } from "./metrics.ts";
import { counter, gauge, histogram } from "./metrics.ts";

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
const NAKS = counter("gateway_naks_total", { help: "Naks.", labels: [] });

function samples(text: string): string[] {
  return text.split("\n").filter((line) => line !== "" && line[0] !== "#");
}

Deno.test("MetricRegistry writes counters by label values", async () => {
  const registry = new MetricRegistry();
  const requests = registry.counter(REQUESTS);
  requests.with("chat", "200").add();
  requests.with("chat", "200").add(2);
  requests.with("models", "401").add();
  const expected = [
    'gateway_requests_total{route="chat",status="200"} 3',
    'gateway_requests_total{route="models",status="401"} 1',
  ];
  assert.deepEqual(samples(await registry.text()), expected);
  // Looking twice must not count twice.
  assert.deepEqual(samples(await registry.text()), expected);
});

Deno.test("MetricRegistry keeps label values apart that look alike when joined", async () => {
  const registry = new MetricRegistry();
  const requests = registry.counter(REQUESTS);
  requests.with("a", "bc").add();
  requests.with("ab", "c").add();
  assert.equal(samples(await registry.text()).length, 2);
});

Deno.test("MetricRegistry escapes what stands in a label", async () => {
  const registry = new MetricRegistry();
  registry.counter(REQUESTS).with('a"b', "c\n\\").add();
  assert.deepEqual(samples(await registry.text()), [
    String.raw`gateway_requests_total{route="a\"b",status="c\n\\"} 1`,
  ]);
});

Deno.test("MetricRegistry shows a counter without labels from the start", async () => {
  const registry = new MetricRegistry();
  registry.counter(NAKS);
  assert.deepEqual(samples(await registry.text()), ["gateway_naks_total 0"]);
});

Deno.test("MetricRegistry writes a histogram with rising buckets, sum and count", async () => {
  const registry = new MetricRegistry();
  const wait = registry.histogram(WAIT).with("m");
  for (const seconds of [0.05, 0.1, 0.5, 3]) wait.observe(seconds);
  const text = await registry.text();
  assert.deepEqual(samples(text), [
    'gateway_wait_seconds_bucket{model="m",le="0.1"} 2',
    'gateway_wait_seconds_bucket{model="m",le="1"} 3',
    'gateway_wait_seconds_bucket{model="m",le="+Inf"} 4',
    'gateway_wait_seconds_sum{model="m"} 3.65',
    'gateway_wait_seconds_count{model="m"} 4',
  ]);
  assert.match(text, /^# TYPE gateway_wait_seconds histogram$/m);
});

Deno.test("MetricRegistry asks for gauges when somebody looks", async () => {
  const registry = new MetricRegistry();
  let used = 1;
  registry.gauge(SLOTS, () => [[["used"], used], [["free"], 9 - used]]);
  assert.deepEqual(samples(await registry.text()), [
    'gateway_slots{state="used"} 1',
    'gateway_slots{state="free"} 8',
  ]);
  used = 4;
  assert.match(await registry.text(), /\{state="used"\} 4/);
});

Deno.test("MetricRegistry refuses a name twice", () => {
  const registry = new MetricRegistry();
  registry.counter(NAKS);
  assert.throws(() => registry.counter(NAKS), /is there already/);
});

Deno.test("HistogramCell counts a value at a bound below it", () => {
  const bounds = [1, 2];
  for (
    const [value, expected] of [
      [0, [1, 1, 1]],
      [1, [1, 1, 1]],
      [1.001, [0, 1, 1]],
      [2, [0, 1, 1]],
      [2.001, [0, 0, 1]],
      [Infinity, [0, 0, 1]],
    ] as const
  ) {
    const cell = new HistogramCell(bounds);
    cell.observe(value);
    assert.deepEqual(cell.cumulative(), expected);
  }
});

Deno.test("CounterCell adds", () => {
  const cell = new CounterCell();
  cell.add();
  cell.add(0.5);
  assert.equal(cell.value, 1.5);
});
