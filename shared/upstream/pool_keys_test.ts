/**
 * Promise: a request that one key of a server cannot take goes on with the next key,
 * the next server, and then waits; no limit counts against the health of a server.
 */
import assert from "node:assert/strict";
import { type KeyEvent, Keyring } from "../server_limits/keyring.ts";
import type { Bounds } from "../server_limits/rule.ts";
import { UseTable } from "../server_limits/use_table.ts";
import {
  SaturatedError,
  UpstreamError,
  type UpstreamFault,
} from "./http/errors.ts";
import type { AttemptReport } from "./attempt.ts";
import {
  BackendPool,
  type BackendPoolOptions,
  type PoolBackend,
} from "./pool.ts";

interface FakeKey extends PoolBackend {
  readonly key: string;
}

interface FakeServer {
  readonly name: string;
  readonly keys: readonly string[];
  readonly keyBounds?: Bounds;
  readonly bounds?: Bounds;
  readonly preference?: number;
}

/** What a key's server does: answers, or fails with this fault. */
type Acts = Map<string, UpstreamFault>;

/** Model servers with keys, and a clock that only sleeps move. */
class Rig {
  nowMs = 1_000_000;
  /** How much time passes whenever somebody looks at the clock. */
  msPerLook = 0;
  readonly acts: Acts = new Map();
  readonly keys: string[] = [];
  readonly events: [key: string, event: KeyEvent["what"]][] = [];
  readonly reports: AttemptReport[] = [];
  readonly sleeps: number[] = [];
  readonly drained = new Set<string>();
  /** Called while a request waits. */
  onSleep = () => {};
  readonly table = new UseTable(() => this.#look());
  readonly pool: BackendPool<FakeKey>;
  readonly #keyrings: readonly Keyring<FakeKey>[];

  constructor(...servers: FakeServer[]) {
    const opened = servers.map((server) => this.#open(server));
    this.#keyrings = opened.map(({ keyring }) => keyring);
    this.pool = new BackendPool({
      backends: opened.map(({ first }) => first),
      keyrings: opened.map(({ keyring }) => keyring),
      now: () => this.#look(),
      random: () => 0,
      overrideOf: (backend) => (
        { isDrained: this.drained.has(backend) }
      ),
      sleep: (ms) => {
        this.sleeps.push(ms);
        this.nowMs += ms;
        this.onSleep();
        return Promise.resolve();
      },
      onAttempt: (report) => this.reports.push(report),
      onOddity() {},
    });
  }

  /** How long a request would have to wait for any key. */
  get waitMs(): number {
    return Math.min(...this.#keyrings.map((keyring) => keyring.waitMs()));
  }

  /** Runs a request; `gate` keeps it from ending. */
  run(
    gate?: Promise<void>,
    part: { mayWait?: boolean } = {},
  ): Promise<string> {
    const { signal } = new AbortController();
    const context = { requestId: "r", signal, ...part };
    return this.pool.run(context, async ({ key }, progress) => {
      this.keys.push(key);
      await gate;
      const fault = this.acts.get(key);
      if (fault !== undefined) throw new UpstreamError(fault);
      progress.usage = {
        prompt_tokens: 50,
        completion_tokens: 50,
        total_tokens: 100,
      };
      return key;
    });
  }

  #look(): number {
    this.nowMs += this.msPerLook;
    return this.nowMs;
  }

  #open({ name, keys, preference = 0, ...limits }: FakeServer) {
    const config = { name, preference, weight: 1 };
    const backends = keys.map((key): FakeKey => ({ key, config, close() {} }));
    const [first = assert.fail("no key")] = backends;
    const useOf = (variable: string | null) =>
      this.table.useOf({ baseUrl: name, model: "m", variable });
    const { bounds = {}, keyBounds = {} } = limits;
    const keyring = new Keyring<FakeKey>({
      keys: backends.map((backend) => ({
        variable: backend.key,
        use: useOf(backend.key),
        bounds: keyBounds,
        backend,
      })),
      server: { use: useOf(null), bounds },
      random: () => 0,
      onEvent: (key, { what }) => this.events.push([key, what]),
    });
    return { first, keyring };
  }
}

Deno.test("a key that meets a limit rests, and the next one answers the same request", async () => {
  const t = new Rig({ name: "a", keys: ["one", "two", "three"] });
  t.acts.set("one", "rate_limited");
  for (let each = 0; each < 20; each += 1) {
    assert.notEqual(await t.run(), "one");
  }
  assert.deepEqual(t.keys.filter((key) => key === "one"), ["one"]);
  assert.deepEqual(t.events, [["one", "limit"]]);
  assert.deepEqual(t.sleeps, []);
  assert.equal(t.pool.breakerStates().get("a"), "closed");
  assert.deepEqual(
    t.reports.slice(0, 2).map(({ key, outcome }) => `${key} ${outcome}`),
    ["one rate_limited", "two success"],
  );
});

Deno.test("refusals of keys open no breaker and use up no retry", async () => {
  const t = new Rig({ name: "a", keys: ["one"] });
  t.acts.set("one", "rate_limited");
  for (let each = 0; each < 30; each += 1) {
    await assert.rejects(t.run(), SaturatedError);
    t.nowMs += 60_000;
  }
  assert.equal(t.pool.breakerStates().get("a"), "closed");
  t.acts.set("one", "server_error");
  t.keys.splice(0);
  await assert.rejects(t.run(), UpstreamError);
  assert.deepEqual(t.keys, ["one", "one"], "there is still a retry");
});

Deno.test("a limit that ends while a request is looking for a key is waited for", async () => {
  for (const bounds of ["bounds", "keyBounds"] as const) {
    for (let lateMs = 0; lateMs < 60; lateMs += 1) {
      const t = new Rig({ name: "a", keys: ["a"], [bounds]: { requests: 1 } });
      await t.run();
      t.nowMs += 61_000 - lateMs;
      t.msPerLook = 1;
      assert.equal(await t.run(), "a", `${bounds}, ${lateMs} ms before`);
    }
  }
});

Deno.test("a key that its server does not know is left alone while others serve", async () => {
  const t = new Rig({ name: "a", keys: ["dead", "good"] });
  t.acts.set("dead", "credentials");
  for (let each = 0; each < 50; each += 1) assert.equal(await t.run(), "good");
  assert.equal(t.keys.filter((key) => key === "dead").length, 1);
  assert.deepEqual(t.events, [["dead", "dead"]]);
  assert.equal(t.pool.breakerStates().get("a"), "closed");
  t.nowMs += 60_001;
  t.acts.delete("dead");
  for (let each = 0; each < 5; each += 1) await t.run();
  assert.ok(t.keys.slice(-5).includes("dead"), "it is tried again");
});

Deno.test("if a server knows none of its keys, each request says so at once", async () => {
  const t = new Rig({ name: "a", keys: ["one", "two"] });
  for (const key of ["one", "two"]) t.acts.set(key, "credentials");
  for (let each = 0; each < 3; each += 1) {
    await assert.rejects(
      t.run(),
      (error) =>
        error instanceof UpstreamError && error.fault === "credentials",
    );
  }
  assert.equal(t.keys.length, 6);
  assert.deepEqual(t.sleeps, []);
});

Deno.test("a server at its limit is followed by the next server, then by a wait", async () => {
  const t = new Rig(
    { name: "a", keys: ["a"], bounds: { inFlight: 1 } },
    { name: "b", keys: ["b"], bounds: { inFlight: 1 }, preference: 1 },
  );
  const { promise: gate, resolve: end } = Promise.withResolvers<void>();
  const running = [t.run(gate), t.run(gate)];
  assert.deepEqual(t.keys, ["a", "b"]);
  assert.ok(t.waitMs > 0);
  const waiting = t.run();
  end();
  await Promise.all([...running, waiting]);
  assert.equal(t.keys.length, 3);
  assert.ok(t.sleeps.length > 0 && t.sleeps.length < 10, `${t.sleeps}`);
  assert.equal(t.waitMs, 0);
});

Deno.test("a limit that is free again while a request looks for another server is used", async () => {
  const t = new Rig(
    { name: "a", keys: ["a"], bounds: { inFlight: 1 } },
    { name: "b", keys: ["b"], preference: 1 },
  );
  t.acts.set("b", "credentials");
  const { promise: gate, resolve: end } = Promise.withResolvers<void>();
  const running = t.run(gate);
  const waiting = t.run(running.then(() => {}));
  // "b" fails only after "a" has become free.
  end();
  assert.deepEqual(await Promise.all([running, waiting]), ["a", "a"]);
});

Deno.test("who must wait for longer than for a worker is told when to come again", async () => {
  const t = new Rig({ name: "a", keys: ["one"], keyBounds: { requests: 2 } });
  await t.run();
  await t.run();
  await assert.rejects(t.run(), (error) => {
    assert.ok(error instanceof SaturatedError);
    assert.equal(error.code, "upstream_rate_limited");
    const { retryAfterMs } = error;
    return retryAfterMs !== null && retryAfterMs > 50_000;
  });
  assert.deepEqual(t.sleeps, []);
  t.nowMs += 62_000;
  assert.equal(await t.run(), "one");
});

Deno.test("a request that its edge queues does not wait here, and is told how long it must", async () => {
  const t = new Rig(
    { name: "a", keys: ["a"], bounds: { inFlight: 1 } },
    { name: "b", keys: ["b"], bounds: { inFlight: 1 }, preference: 1 },
  );
  const { promise: held, resolve: end } = Promise.withResolvers<void>();
  const first = t.run(held, { mayWait: false });
  assert.equal(t.pool.saturatedMs, 0, "b has room");
  const second = t.run(held, { mayWait: false });
  assert.ok(t.pool.saturatedMs > 0);
  await assert.rejects(t.run(held, { mayWait: false }), SaturatedError);
  assert.deepEqual(t.sleeps, []);
  end();
  assert.deepEqual(await Promise.all([first, second]), ["a", "b"]);
  assert.equal(t.pool.saturatedMs, 0);
});

Deno.test("a request that a server has failed waits here for the next one, whoever queues it", async () => {
  const t = new Rig(
    { name: "a", keys: ["a"] },
    { name: "b", keys: ["b"], bounds: { inFlight: 1 }, preference: 1 },
  );
  t.acts.set("a", "unknown_model");
  const { promise: held, resolve: end } = Promise.withResolvers<void>();
  const first = t.run(held);
  await Promise.resolve();
  t.onSleep = end;
  end();
  const second = t.run(undefined, { mayWait: false });
  assert.deepEqual(await Promise.all([first, second]), ["b", "b"]);
});

Deno.test("a server that is drained while a request waits for its limit does not get it", async () => {
  const t = new Rig(
    { name: "a", keys: ["a"], bounds: { inFlight: 1 } },
    { name: "b", keys: ["b"], bounds: { inFlight: 1 }, preference: 1 },
  );
  const { promise: held, resolve: end } = Promise.withResolvers<void>();
  const running = [t.run(held), t.run(held)];
  t.onSleep = () => {
    t.drained.add("a");
    end();
  };
  assert.equal(await t.run(), "b");
  t.drained.add("b");
  await assert.rejects(t.run(), { code: "service_unavailable" });
  await Promise.all(running);
});

Deno.test("tokens count as soon as a request begins, and as stated when it has ended", async () => {
  const t = new Rig({ name: "a", keys: ["one"], keyBounds: { tokens: 1_000 } });
  // Before any has ended, each is expected to cost 1,000.
  const { promise: gate, resolve: end } = Promise.withResolvers<void>();
  const first = t.run(gate);
  assert.ok(t.waitMs > 0);
  end();
  await first;
  for (let each = 0; each < 9; each += 1) {
    assert.equal(t.waitMs, 0, `${each}`);
    await t.run();
  }
  await assert.rejects(t.run(), SaturatedError);
});

Deno.test("a server without limits and with one key is asked without any count", async () => {
  const server: FakeKey = {
    key: "k",
    config: { name: "a", preference: 0, weight: 1 },
    close() {},
  };
  const options: BackendPoolOptions<FakeKey> = {
    backends: [server],
    now: () => 0,
    random: () => 0,
    sleep: () => Promise.resolve(),
    onAttempt: ({ key }) => assert.equal(key, undefined),
    onOddity() {},
  };
  const pool = new BackendPool(options);
  const { signal } = new AbortController();
  await pool.run({ requestId: "r", signal }, () => Promise.resolve());
  assert.deepEqual([...pool.keyStates()], []);
});
