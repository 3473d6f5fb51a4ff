/** Which backend of a model is tried, and which next. */
import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";
import { monotonicNow } from "../process/clock.ts";
import { ApiError } from "../openai/error.ts";
import { seededRandom } from "../../tests/support/seeded_random.ts";
import { UpstreamError, type UpstreamFault } from "./http/errors.ts";
import type { AttemptProgress, AttemptReport } from "./attempt.ts";
import { BackendPool, type PoolBackend } from "./pool.ts";

/** What a fake backend does in each call; the last act is repeated. */
type Act =
  | "ok"
  /** Words, then this fault. */
  | { after: UpstreamFault }
  | UpstreamFault
  | "bug"
  | "hang"
  | UpstreamError;

class Fake implements PoolBackend {
  calls = 0;
  readonly config: PoolBackend["config"];

  constructor(name: string, readonly acts: Act[], preference = 0) {
    this.config = { name, preference, weight: 1 };
  }

  /** Says two words to `output`. */
  async answer(
    output: string[],
    progress: AttemptProgress,
    signal: AbortSignal,
  ) {
    const { acts, config: { name } } = this;
    const act = acts[Math.min(this.calls++, acts.length - 1)] ?? "ok";
    if (act instanceof UpstreamError) throw act;
    if (act === "bug") throw new TypeError("Bug");
    if (act === "hang") {
      await setTimeout(60_000, undefined, { signal }).catch(() =>
        signal.throwIfAborted()
      );
    } else if (typeof act === "string" && act !== "ok") {
      throw new UpstreamError(act, { message: `${name} ${act}` });
    }
    progress.onBegun();
    progress.hasSent = true;
    output.push(`${name}1`);
    if (typeof act === "object") throw new UpstreamError(act.after);
    output.push(`${name}2`);
  }

  close() {}
}

/** The first backend is preferred, and so on. */
function rig(...acts: Act[][]) {
  let nowMs = 1_000;
  const reports: AttemptReport[] = [];
  const sleeps: number[] = [];
  const backends = acts.map((each, index) =>
    new Fake("abcd".charAt(index), each, index)
  );
  const pool = new BackendPool({
    backends,
    now: () => nowMs,
    random: () => 0.5,
    sleep: (ms) => {
      sleeps.push(ms);
      return Promise.resolve();
    },
    onAttempt: (report) => reports.push(report),
    onOddity: () => {},
  });
  const [a = new Fake("none", [])] = backends;
  const wait = (ms: number) => {
    nowMs += ms;
  };
  return { pool, reports, sleeps, wait, a };
}

async function ask(
  pool: BackendPool<Fake>,
  signal = new AbortController().signal,
): Promise<{ text: string; error: unknown }> {
  const output: string[] = [];
  const error = await pool.run(
    { requestId: "req1", signal },
    (backend, progress) => backend.answer(output, progress, signal),
  ).then(() => null, (error: unknown) => error);
  return { text: output.join(" "), error };
}

/**
 * What the backends do, what the request ends with (words, code of the error), its
 * attempts.
 */
type Case = { acts: Act[][]; end: string; attempts: string };
const AGAIN: UpstreamFault[] = ["unreachable", "server_error", "truncated"];
const NOT_AGAIN: UpstreamFault[] = [
  "rate_limited",
  "overloaded",
  "unknown_model",
  "timeout",
  "invalid",
  "credentials",
];
const repeated = (fault: UpstreamFault): Case => {
  return {
    acts: [[fault, "ok"]],
    end: "a1 a2",
    attempts: `a ${fault}, a success`,
  };
};
const notRepeated = (fault: UpstreamFault): Case => {
  return {
    acts: [[fault, "ok"]],
    end: new UpstreamError(fault).code,
    attempts: `a ${fault}`,
  };
};
const goneOn = (fault: UpstreamFault): Case => {
  return {
    acts: [[fault], ["ok"]],
    end: "b1 b2",
    attempts: `a ${fault}, b success`,
  };
};
const bothFailed = (fault: UpstreamFault, code: string): Case => {
  return {
    acts: [[fault], ["unreachable"]],
    end: code,
    attempts: `a ${fault}, b unreachable`,
  };
};

const CASES: { [promise: string]: Case[] } = {
  "takes the first backend, and tries at most three": [
    { acts: [["ok"], ["ok"]], end: "a1 a2", attempts: "a success" },
    {
      acts: [["timeout"], ["timeout"], ["timeout"], ["ok"]],
      end: "upstream_timeout",
      attempts: "a timeout, b timeout, c timeout",
    },
  ],
  "goes on to the next backend": [...AGAIN, ...NOT_AGAIN].map(goneOn),
  "does not go on after a refused request, an answer in an unknown form, the total deadline, an error of ours or the first word":
    [
      {
        acts: [["request"], ["ok"]],
        end: "invalid_request",
        attempts: "a request",
      },
      {
        acts: [["deadline"], ["ok"]],
        end: "upstream_timeout",
        attempts: "a deadline",
      },
      {
        acts: [["unsupported"], ["ok"]],
        end: "upstream_invalid",
        attempts: "a unsupported",
      },
      { acts: [["bug"], ["ok"]], end: "TypeError", attempts: "a internal" },
      {
        acts: [[{ after: "invalid" }], ["ok"]],
        end: "a1 upstream_invalid",
        attempts: "a invalid",
      },
    ],
  "asks the only backend once more, not twice": [
    ...AGAIN.map(repeated),
    {
      acts: [["server_error"]],
      end: "upstream_error",
      attempts: "a server_error, a server_error",
    },
  ],
  "does not ask the only backend again": NOT_AGAIN.map(notRepeated),
  "asks none of two again, and tells a limit rather than a fault": [
    bothFailed("truncated", "upstream_unreachable"),
    bothFailed("rate_limited", "upstream_rate_limited"),
    bothFailed("overloaded", "overloaded"),
  ],
};

for (const [promise, cases] of Object.entries(CASES)) {
  Deno.test(`run() ${promise}`, async () => {
    for (const { acts, end, attempts } of cases) {
      const r = rig(...acts);
      const { text, error } = await ask(r.pool);
      const code = error instanceof ApiError ? error.code : Object(error).name;
      assert.equal([text, code].filter(Boolean).join(" "), end, attempts);
      const reports = r.reports.map((x) => `${x.backend} ${x.outcome}`).join(
        ", ",
      );
      assert.equal(reports, attempts);
      const isRepeated = attempts.includes(", a ");
      assert.deepEqual(r.sleeps, isRepeated ? [100] : []);
      for (const { outcome, error } of r.reports) {
        assert.equal(error === null, outcome === "success");
      }
    }
  });
}

Deno.test("run() avoids a backend whose answers break off, 19 of 20", async () => {
  const acts = Array.from(
    { length: 40 },
    (_, i): Act => i % 20 === 19 ? "ok" : { after: "truncated" },
  );
  const { pool, a, wait } = rig(acts);
  for (let i = 0; i < 40; i++) await ask(pool);
  assert.equal(pool.breakerStates().get("a"), "open");
  assert.equal(a.calls, 5);
  // The first token of a probe says nothing about the rest of its answer.
  for (const openMs of [1_000, 2_000, 4_000]) {
    wait(openMs - 1);
    assert.ok((await ask(pool)).error);
    wait(1);
    assert.equal((await ask(pool)).text, "a1");
    assert.equal(pool.breakerStates().get("a"), "open");
  }
  assert.equal(a.calls, 8);
});

Deno.test("run() retries only within a budget", async () => {
  // Every second request fails once: the breaker stays closed, the budget does not.
  const r = rig(
    Array.from({ length: 40 }, (_, i) => i % 3 === 0 ? "server_error" : "ok"),
  );
  let failed = 0;
  for (let i = 0; i < 20; i++) {
    if ((await ask(r.pool)).error !== null) failed++;
  }
  // Five, and one more for each ten requests.
  assert.equal(r.sleeps.length, 6);
  assert.ok(failed > 0);
});

Deno.test("run() tries a limited backend last until its wait is over", async () => {
  for (const fault of ["rate_limited", "overloaded"] as const) {
    const limit = new UpstreamError(fault, { retryAfterMs: 7_000 });
    const r = rig([limit, "ok"], ["ok"]);
    assert.equal((await ask(r.pool)).text, "b1 b2");
    r.wait(6_999);
    assert.equal((await ask(r.pool)).text, "b1 b2");
    r.wait(1);
    assert.equal((await ask(r.pool)).text, "a1 a2");
  }
});

Deno.test("run() answers 503 at once after five faults of the only backend, but not after refusals", async () => {
  const harmless: UpstreamFault[] = [
    "request",
    "rate_limited",
    "overloaded",
    "unsupported",
  ];
  for (const fault of [...harmless, "unknown_model", "credentials"] as const) {
    const r = rig([fault]);
    for (let i = 0; i < 9; i++) await ask(r.pool);
    const { error } = await ask(r.pool);
    assert.ok(error instanceof ApiError);
    const isOpen = !harmless.includes(fault);
    assert.equal(r.a.calls, isOpen ? 5 : 10, fault);
    assert.equal(r.sleeps.length, 0);
    assert.equal(error.code === "service_unavailable", isOpen, fault);
    if (isOpen) assert.equal(error.retryAfterMs, 1_000);
  }
});

Deno.test("run() does not count an abort as a failure", async () => {
  const r = rig(["hang"]);
  for (let i = 0; i < 10; i++) {
    const controller = new AbortController();
    const asking = ask(r.pool, controller.signal);
    controller.abort(new Error("Client left"));
    assert.match(String((await asking).error), /Client left/);
  }
  assert.equal(r.pool.breakerStates().get("a"), "closed");
  assert.ok(r.reports.every(({ outcome }) => outcome === "aborted"));
});

Deno.test("run() stops waiting to ask again when it is aborted", async () => {
  const a = new Fake("a", ["server_error"]);
  const controller = new AbortController();
  const pool = new BackendPool({
    backends: [a],
    now: monotonicNow,
    random: () => 0.5,
    sleep: (ms, signal) => setTimeout(ms, undefined, { signal }),
    onAttempt: () => controller.abort(new Error("Client left")),
    onOddity: () => {},
  });
  const { error } = await ask(pool, controller.signal);
  assert.ok(error);
  assert.equal(a.calls, 1);
});

Deno.test("run() reports how long it took, to the first token and in all", async () => {
  const r = rig(["ok"]);
  const { answer } = r.a;
  r.a.answer = async (...call) => {
    r.wait(30);
    await answer.apply(r.a, call);
    r.wait(12);
  };
  await ask(r.pool);
  assert.deepEqual(r.reports, [{
    requestId: "req1",
    backend: "a",
    outcome: "success",
    durationMs: 42,
    firstTokenMs: 30,
    error: null,
  }]);
});

Deno.test("run() prefers backends by preference, then in proportion to their weights", async () => {
  const make = (name: string, weight: number, preference: number) =>
    Object.assign(new Fake(name, ["ok"]), {
      config: { name, weight, preference },
    });
  const spare = make("spare", 9, 1);
  const seldom = make("seldom", 1, 0);
  const often = make("often", 3, 0);
  const pool = new BackendPool({
    backends: [spare, seldom, often],
    random: seededRandom(7),
    sleep: () => Promise.resolve(),
    now: () => 0,
    onAttempt: () => {},
    onOddity: () => {},
  });
  for (let i = 0; i < 4_000; i++) await ask(pool);
  const { calls } = often;
  assert.ok(calls > 2_880 && calls < 3_120, `${calls} of 4,000`);
  assert.equal(spare.calls, 0);
});
