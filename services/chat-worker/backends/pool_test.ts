import assert from "node:assert/strict";
import { sleep } from "../create_backends.ts";
import { monotonicNow } from "@gateway/shared/process/clock";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { BackendEvent } from "./backend.ts";
import { seededRandom } from "../../../tests/support/seeded_random.ts";
import { UpstreamError, type UpstreamFault } from "./errors.ts";
import {
  type AttemptReport,
  BackendPool,
  orderByWeight,
  type PoolBackend,
} from "./pool.ts";

const request: ChatRequest = {
  model: "neutral-3.7-plus",
  messages: [{ role: "user", content: "hi" }],
  stream: true,
  include_usage: false,
  n: 1,
};

/** What a fake backend does with one call after the other; the last goes on for ever. */
type Act =
  | "ok"
  /** Events, then this fault. */
  | { after: UpstreamFault }
  | UpstreamFault
  | "nothing"
  | "bug"
  | "hang"
  | UpstreamError;

type Fake = PoolBackend["backend"] & {
  calls: number;
  returned: number;
};

function batch(name: string, content: string): BackendEvent[] {
  return [{ type: "delta", index: 0, content: `${name}${content}` }];
}

function fake(name: string, acts: Act[]): Fake {
  const self: Fake = {
    name,
    calls: 0,
    returned: 0,
    async *complete(_request, { signal }) {
      const act = acts[Math.min(self.calls++, acts.length - 1)] ?? "ok";
      try {
        if (act instanceof UpstreamError) throw act;
        if (act === "nothing") return;
        if (act === "bug") throw new TypeError("Bug");
        if (act === "hang") await sleep(60_000, signal);
        if (typeof act === "string" && act !== "ok" && act !== "hang") {
          throw new UpstreamError(act, { message: `${name} ${act}` });
        }
        yield batch(name, "1");
        if (typeof act === "object") throw new UpstreamError(act.after);
        yield batch(name, "2");
      } finally {
        self.returned++;
      }
    },
  };
  return self;
}

interface Rig {
  pool: BackendPool;
  reports: AttemptReport[];
  sleeps: number[];
  wait(ms: number): void;
}

/** The first backend has the lowest preference number, and so on. */
function rig(...backends: PoolBackend["backend"][]): Rig {
  let nowMs = 1_000;
  const reports: AttemptReport[] = [];
  const sleeps: number[] = [];
  const pool = new BackendPool({
    backends: backends.map((backend, preference) => ({
      backend,
      preference,
      weight: 1,
    })),
    now: () => nowMs,
    random: () => 0.5,
    sleep: (ms) => {
      sleeps.push(ms);
      return Promise.resolve();
    },
    onAttempt: (report) => reports.push(report),
  });
  return { pool, reports, sleeps, wait: (ms) => void (nowMs += ms) };
}

async function ask(
  pool: BackendPool,
  signal = new AbortController().signal,
): Promise<{ text: string; error: unknown }> {
  let text = "";
  try {
    for await (
      const events of pool.complete(request, { requestId: "r", signal })
    ) {
      for (const event of events) {
        text += event.type === "delta" ? `${event.content} ` : "";
      }
    }
    return { text: text.trim(), error: null };
  } catch (error) {
    return { text: text.trim(), error };
  }
}

const first: {
  name: string;
  a: Act[];
  b?: Act[];
  text: string;
  code?: string;
  outcomes: string[];
  sleeps?: number;
}[] = [
  {
    name: "takes the first backend",
    a: ["ok"],
    b: ["ok"],
    text: "a1 a2",
    outcomes: ["a success"],
  },
  ...([
    "unreachable",
    "server_error",
    "rate_limited",
    "overloaded",
    "unknown_model",
    "timeout",
    "truncated",
    "invalid",
    "credentials",
  ] as const)
    .map((fault) => ({
      name: `goes on to the next backend after ${fault}`,
      a: [fault],
      b: ["ok" as const],
      text: "b1 b2",
      outcomes: [`a ${fault}`, "b success"],
    })),
  {
    name: "goes on to the next backend after no events",
    a: ["nothing"],
    b: ["ok"],
    text: "b1 b2",
    outcomes: ["a truncated", "b success"],
  },
  {
    name: "does not go on after a refused request",
    a: ["request"],
    b: ["ok"],
    text: "",
    code: "invalid_request",
    outcomes: ["a request"],
  },
  {
    name: "does not go on after the total deadline",
    a: ["deadline"],
    b: ["ok"],
    text: "",
    code: "upstream_timeout",
    outcomes: ["a deadline"],
  },
  {
    name: "does not go on after an error of ours",
    a: ["bug"],
    b: ["ok"],
    text: "",
    code: "TypeError",
    outcomes: ["a internal"],
  },
  ...(["unreachable", "server_error", "truncated"] as const).map((fault) => ({
    name: `asks the only backend again after ${fault}`,
    a: [fault, "ok" as const],
    text: "a1 a2",
    outcomes: [`a ${fault}`, "a success"],
    sleeps: 1,
  })),
  ...([
    "rate_limited",
    "overloaded",
    "unknown_model",
    "timeout",
    "invalid",
    "credentials",
  ] as const).map((fault) => ({
    name: `does not ask the only backend again after ${fault}`,
    a: [fault, "ok" as const],
    text: "",
    code: new UpstreamError(fault).code,
    outcomes: [`a ${fault}`],
  })),
  {
    name: "asks the only backend once more, not twice",
    a: ["server_error"],
    text: "",
    code: "upstream_error",
    outcomes: ["a server_error", "a server_error"],
    sleeps: 1,
  },
  {
    name: "does not ask again when all of two have failed",
    a: ["server_error"],
    b: ["unreachable"],
    text: "",
    code: "upstream_unreachable",
    outcomes: ["a server_error", "b unreachable"],
  },
  {
    name: "tells a limit rather than a fault",
    a: ["rate_limited"],
    b: ["unreachable"],
    text: "",
    code: "upstream_rate_limited",
    outcomes: ["a rate_limited", "b unreachable"],
  },
  {
    name: "tells that there is no room rather than a fault",
    a: ["overloaded"],
    b: ["unreachable"],
    text: "",
    code: "overloaded",
    outcomes: ["a overloaded", "b unreachable"],
  },
  {
    name: "does not go on after the first event",
    a: [{ after: "truncated" }],
    b: ["ok"],
    text: "a1",
    code: "upstream_truncated",
    outcomes: ["a truncated"],
  },
];

for (const { name, a, b, text, code, outcomes, sleeps = 0 } of first) {
  Deno.test(`complete() ${name}`, async () => {
    const backends = [fake("a", a), ...(b === undefined ? [] : [fake("b", b)])];
    const r = rig(...backends);
    const answer = await ask(r.pool);
    assert.equal(answer.text, text);
    const { error } = answer;
    if (code === undefined) assert.equal(error, null);
    else if (error instanceof ApiError) assert.equal(error.code, code);
    else assert.equal(Object(error).name, code);
    assert.deepEqual(
      r.reports.map((x) => `${x.backend} ${x.outcome}`),
      outcomes,
    );
    assert.equal(r.sleeps.length, sleeps);
    for (const { outcome, error } of r.reports) {
      assert.equal(error === null, outcome === "success");
    }
    for (const backend of backends) {
      assert.equal(backend.returned, backend.calls);
    }
  });
}

Deno.test("complete() asks at most three backends", async () => {
  const backends = ["a", "b", "c", "d"].map((name) =>
    fake(name, ["server_error"])
  );
  const r = rig(...backends);
  await ask(r.pool);
  assert.deepEqual(backends.map((b) => b.calls), [1, 1, 1, 0]);
});

Deno.test("complete() waits 50 to 150 ms before it asks the only backend again", async () => {
  const r = rig(fake("a", ["server_error", "ok"]));
  await ask(r.pool);
  assert.deepEqual(r.sleeps, [100]);
});

Deno.test("complete() leaves a backend alone whose answers break off, 19 of 20", async () => {
  const acts = Array.from(
    { length: 40 },
    (_, i): Act => i % 20 === 19 ? "ok" : { after: "truncated" },
  );
  const a = fake("a", acts);
  const { pool } = rig(a);
  for (let i = 0; i < 40; i++) await ask(pool);
  assert.equal(pool.breakerStates().get("a"), "open");
  assert.equal(a.calls, 5);
});

Deno.test("complete() asks again within a budget only", async () => {
  // Every second request fails once: the breaker stays closed, the budget does not.
  const a = fake(
    "a",
    Array.from({ length: 40 }, (_, i) => i % 3 === 0 ? "server_error" : "ok"),
  );
  const r = rig(a);
  let failed = 0;
  for (let i = 0; i < 20; i++) {
    if ((await ask(r.pool)).error !== null) failed++;
  }
  // Five, and one more for each ten requests.
  assert.equal(r.sleeps.length, 6);
  assert.ok(failed > 0);
});

Deno.test("complete() leaves a failing backend alone and comes back to it", async () => {
  const a = fake("a", [...new Array<Act>(5).fill("unreachable"), "ok"]);
  const b = fake("b", ["ok"]);
  const r = rig(a, b);
  for (let i = 0; i < 8; i++) assert.equal((await ask(r.pool)).error, null);
  assert.equal(a.calls, 5);
  assert.deepEqual([...r.pool.breakerStates()], [["a", "open"], [
    "b",
    "closed",
  ]]);
  r.wait(1_000);
  assert.equal((await ask(r.pool)).text, "a1 a2");
  assert.equal(r.pool.breakerStates().get("a"), "closed");
});

Deno.test("complete() answers 503 at once when every backend is left alone", async () => {
  const a = fake("a", ["credentials"]);
  const r = rig(a);
  for (let i = 0; i < 5; i++) await ask(r.pool);
  const { error } = await ask(r.pool);
  assert.ok(error instanceof ApiError);
  assert.equal(error.code, "service_unavailable");
  assert.equal(error.retryAfterMs, 1_000);
  assert.equal(a.calls, 5);
});

for (const fault of ["rate_limited", "overloaded"] as const) {
  Deno.test(`complete() asks a limited backend last until its wait is over: ${fault}`, async () => {
    const limit = new UpstreamError(fault, { retryAfterMs: 7_000 });
    const a = fake("a", [limit, "ok"]);
    const b = fake("b", ["ok"]);
    const r = rig(a, b);
    assert.equal((await ask(r.pool)).text, "b1 b2");
    r.wait(6_999);
    assert.equal((await ask(r.pool)).text, "b1 b2");
    r.wait(1);
    assert.equal((await ask(r.pool)).text, "a1 a2");
  });
}

Deno.test("complete() asks a busy backend for each request, and leaves it alone when it is nothing but busy", async () => {
  const a = fake("a", ["overloaded"]);
  const r = rig(a);
  for (let i = 0; i < 20; i++) {
    const { error } = await ask(r.pool);
    assert.ok(error instanceof ApiError);
    assert.equal(error.code, "overloaded");
    assert.equal(error.retryAfterMs, 1_000);
  }
  assert.equal(a.calls, 20);
  const { error } = await ask(r.pool);
  assert.ok(error instanceof ApiError);
  assert.equal(error.code, "service_unavailable");
  assert.equal(a.calls, 20);
});

const harmless: { fault: UpstreamFault; calls: number }[] = [
  // Ten requests, asked once each: the breaker is closed and no retry was made.
  { fault: "request", calls: 10 },
  { fault: "rate_limited", calls: 10 },
  { fault: "overloaded", calls: 10 },
  // Five failures open the breaker.
  { fault: "unknown_model", calls: 5 },
];

for (const { fault, calls } of harmless) {
  Deno.test(`complete() asks the only backend ${calls} times for ten requests that end with ${fault}`, async () => {
    const a = fake("a", [fault]);
    const r = rig(a);
    for (let i = 0; i < 10; i++) await ask(r.pool);
    assert.equal(a.calls, calls);
    assert.equal(r.sleeps.length, 0);
  });
}

Deno.test("complete() takes no abort for a failure", async () => {
  const a = fake("a", ["hang"]);
  const r = rig(a);
  for (let i = 0; i < 10; i++) {
    const controller = new AbortController();
    const asking = ask(r.pool, controller.signal);
    controller.abort(new Error("Client left"));
    assert.match(String((await asking).error), /Client left/);
  }
  assert.equal(r.pool.breakerStates().get("a"), "closed");
  assert.deepEqual(
    new Set(r.reports.map((x) => x.outcome)),
    new Set(["aborted"]),
  );
});

Deno.test("complete() asks nobody when it is aborted before", async () => {
  const a = fake("a", ["ok"]);
  const { error } = await ask(
    rig(a).pool,
    AbortSignal.abort(new Error("Client left")),
  );
  assert.match(String(error), /Client left/);
  assert.equal(a.calls, 0);
});

Deno.test("complete() stops waiting to ask again when it is aborted", async () => {
  const a = fake("a", ["server_error"]);
  const controller = new AbortController();
  const pool = new BackendPool({
    backends: [{ backend: a, preference: 0, weight: 1 }],
    now: monotonicNow,
    random: () => 0.5,
    sleep,
    onAttempt: () => controller.abort(new Error("Client left")),
  });
  assert.match(
    String((await ask(pool, controller.signal)).error),
    /Client left/,
  );
  assert.equal(a.calls, 1);
});

Deno.test("complete() ends the attempt when its reader stops", async () => {
  const a = fake("a", ["ok"]);
  const r = rig(a);
  const signal = new AbortController().signal;
  for await (const _ of r.pool.complete(request, { requestId: "r", signal })) {
    break;
  }
  assert.equal(a.returned, 1);
  assert.deepEqual(r.reports.map((x) => x.outcome), ["aborted"]);
});

Deno.test("complete() reports how long it took, to the first event and in all", async () => {
  const slow: PoolBackend["backend"] = {
    name: "slow",
    async *complete() {
      slowRig.wait(30);
      yield await Promise.resolve(batch("s", "1"));
      slowRig.wait(12);
    },
  };
  const slowRig = rig(slow);
  await ask(slowRig.pool);
  assert.deepEqual(slowRig.reports, [
    {
      requestId: "r",
      backend: "slow",
      outcome: "success",
      durationMs: 42,
      firstEventMs: 30,
      error: null,
    },
  ]);
});

Deno.test("close() closes the backends that can be closed", () => {
  let closed = 0;
  const { pool } = rig(fake("a", ["ok"]), {
    ...fake("b", ["ok"]),
    close: () => closed++,
  });
  pool.close();
  assert.equal(closed, 1);
});

Deno.test("orderByWeight() goes by preference, and first as often as the weight says", () => {
  const backend = fake("any", ["ok"]);
  const entry = (preference: number, weight: number) => ({
    backend,
    preference,
    weight,
  });
  const [often, seldom, spare] = [entry(0, 3), entry(0, 1), entry(1, 9)];
  const random = seededRandom(7);
  let oftenFirst = 0;
  for (let i = 0; i < 4_000; i++) {
    const order = orderByWeight([spare, seldom, often], random);
    assert.equal(order[2], spare);
    if (order[0] === often) oftenFirst++;
  }
  assert.ok(oftenFirst > 2_880 && oftenFirst < 3_120, `${oftenFirst} of 4,000`);
});
