/** What is admitted and what is refused, and what the answer says about it. */
import assert from "node:assert/strict";
import { parseKeyNetwork } from "@gateway/shared/keys/networks";
import { limiterKey } from "@gateway/shared/keys/record";
import {
  DONE,
  fingerprint,
  type KeyOptions,
} from "../../../tests/support/limits/admission_fixture.ts";
import { letTimePass } from "../../../tests/support/limits/limiter_clock.ts";
import { until } from "../../../tests/support/wait_for.ts";
import type { Ask, Grant } from "./limiter.ts";
import { ASK, close, onStage } from "./limiter_fixture.ts";

Deno.test(
  "ASVS 2.3.4, 2.4.1, API4: admit() decides by state and rights; a refusal consumes nothing",
  onStage(async (t) => {
    const nowMs = Math.round(await t.world.time());
    const model = ASK.model;
    const listing: Partial<Ask> = { scope: "models", model: null };
    const table: { key: KeyOptions; expected: string; ask?: Partial<Ask> }[] = [
      { key: {}, expected: "admitted" },
      { key: { state: "disabled" }, expected: "disabled" },
      { key: { ownerState: "disabled" }, expected: "disabled" },
      { key: { ownerState: "disabled" }, expected: "disabled", ask: listing },
      { key: { ownerState: "enabled" }, expected: "admitted" },
      { key: { expiresAtMs: nowMs + 60_000 }, expected: "admitted" },
      { key: { expiresAtMs: nowMs }, expected: "expired" },
      { key: { expiresAtMs: 1, state: "disabled" }, expected: "expired" },
      { key: { scopes: "chat" }, expected: "admitted" },
      { key: { scopes: "image,chat" }, expected: "admitted" },
      { key: { scopes: "models" }, expected: "scope" },
      { key: { scopes: "chats,xchat" }, expected: "scope" },
      { key: { scopes: "" }, expected: "scope" },
      { key: { models: `a,${model},b` }, expected: "admitted" },
      { key: { models: "a,b" }, expected: "model" },
      { key: { models: "neutral-3x7-plus" }, expected: "model" },
      { key: { models: "a" }, expected: "admitted", ask: listing },
    ];
    for (const { key: options, expected, ask } of table) {
      const key = await t.world.addKey(options);
      const before = await fingerprint(t.world);
      const decision = await t.edge.admit(key, { ...ASK, ...ask });
      const found = decision.isAdmitted ? "admitted" : decision.reason;
      assert.equal(found, expected, JSON.stringify(options));
      const isChanged = await fingerprint(t.world) !== before;
      assert.equal(isChanged, expected === "admitted");
    }
    const ghost = { keyId: "key_none", ownerId: "own_none" };
    assert.equal((await t.refused(ghost)).reason, "unknown");
  }),
);

Deno.test(
  "a key is used only from its networks, to the bit, whatever is asked for",
  onStage(async (t) => {
    const rows = [
      { cidrs: "10.0.0.0/8", inside: "10.255.255.255", outside: "11.0.0.0" },
      { cidrs: "10.0.0.0/8", inside: "::ffff:10.1.2.3", outside: "::10.1.2.3" },
      {
        cidrs: "192.0.2.128/25",
        inside: "192.0.2.128",
        outside: "192.0.2.127",
      },
      { cidrs: "192.0.2.6/31", inside: "192.0.2.7", outside: "192.0.2.8" },
      { cidrs: "192.0.2.7", inside: "192.0.2.7", outside: "192.0.2.6" },
      {
        cidrs: "2001:db8:8000::/33",
        inside: "2001:db8:ffff::1",
        outside: "2001:db8:7fff::1",
      },
      { cidrs: "2001:db8::1", inside: "2001:db8::1", outside: "2001:db8::2" },
      {
        cidrs: "192.0.2.1 2001:db8::/32",
        inside: "2001:db8::9",
        outside: "192.0.2.2",
      },
      { cidrs: "0.0.0.0/0", inside: "203.0.113.9", outside: "2001:db8::1" },
      { cidrs: "::/0", inside: "203.0.113.9", outside: "not an address" },
    ];
    for (const { cidrs, inside, outside } of rows) {
      const networks = cidrs.split(" ").map((cidr) => {
        const parsed = parseKeyNetwork(cidr);
        return "stored" in parsed ? parsed.stored : assert.fail(parsed.fault);
      }).join();
      const key = await t.world.addKey({ networks });
      await t.admitted({ ...key, clientAddress: inside });
      for (const caller of [{ ...key, clientAddress: outside }, key]) {
        assert.equal((await t.refused(caller)).reason, "address", cidrs);
        const looked = await t.edge.look(caller, "chat");
        assert.equal(looked?.reason, "address");
        const rights = await t.edge.rightsOf(caller, null);
        assert.ok("reason" in rights && rights.reason === "address");
      }
      const rights = await t.edge.rightsOf(
        { ...key, clientAddress: inside },
        "chat",
      );
      assert.deepEqual(rights, []);
    }
  }),
);

Deno.test(
  "the longest wait of all violated limits is told",
  onStage(async (t) => {
    const key = await t.world.addKey({
      limits: { requestsPerMinute: 60, tokensPerMinute: 600, concurrency: 1 },
      ownerLimits: { requestsPerMinute: 1 },
    });
    await t.admitted(key, { wantTokens: 600 });
    // Tokens: 20 come back in 2 s; concurrency says 1 s; the owner's request a minute.
    const refusal = await t.limited(key, { wantTokens: 20 });
    assert.equal(refusal.which, "owner:requests");
    close(refusal.waitMs, 60_000, 2_000);
  }),
);

Deno.test(
  "a request is admitted after the wait of its refusal, and a limit is full after its reset",
  onStage(async (t) => {
    /** Each admits six requests at once, then one every ten seconds. */
    const rows = [
      { unit: "requests", limits: { requestsPerMinute: 6 }, remaining: 5 },
      { unit: "tokens", limits: { tokensPerMinute: 600 }, remaining: 500 },
    ] as const;
    for (const side of ["limits", "ownerLimits"]) {
      for (const { unit, limits, remaining } of rows) {
        const principal = await t.world.addKey({ [side]: limits });
        const pass = (ms: number) =>
          letTimePass(t.world.link, { principal, ms });
        for (let used = 0; used < 6; used += 1) await t.admitted(principal);
        const { waitMs } = await t.limited(principal);
        close(waitMs, 10_000, 1_000);
        await pass(waitMs - 2_000);
        await t.limited(principal);
        await pass(2_000);
        const { rates } = await t.admitted(principal);
        await pass(rates[unit]?.resetMs ?? assert.fail());
        const { rates: full } = await t.admitted(principal);
        assert.equal(full[unit]?.remaining, remaining, `${side}, ${unit}`);
      }
    }
  }),
);

Deno.test(
  "the state of an earlier version still limits, and a broken one is a fault",
  onStage(async (t) => {
    const key = await t.world.addKey({
      limits: { requestsPerMinute: 1, tokensPerDay: 100 },
    });
    await t.admitted(key);
    const cut = async (bytes: number) => {
      const script = "local s = redis.call('HGET', KEYS[1], 's')\n" +
        "redis.call('HSET', KEYS[1], 's', string.sub(s, 1, ARGV[1]))";
      const size = String(bytes);
      await t.world.command("EVAL", script, "1", limiterKey(key), size);
    };
    await cut(6 * 8);
    assert.equal((await t.limited(key)).which, "key:day");
    await t.world.setKey(key, { tpd: "0" });
    assert.equal((await t.limited(key)).which, "key:requests");
    await cut(4 * 8);
    await assert.rejects(t.edge.admit(key, ASK), /too short/);
    await until(() => t.edge.leases.unsettled === 0);
  }),
);

Deno.test(
  "rates show the tighter of key and owner, this request counted",
  onStage(async (t) => {
    const key = await t.world.addKey({
      limits: { requestsPerMinute: 600, tokensPerMinute: 1_000 },
      ownerLimits: { requestsPerMinute: 60, tokensPerMinute: 100_000 },
    });
    assert.deepEqual((await t.admitted(key)).rates, {
      requests: { limit: 60, remaining: 59, resetMs: 1_000 },
      tokens: { limit: 1_000, remaining: 900, resetMs: 6_000 },
    });
    const free = await t.admitted(await t.world.addKey());
    assert.deepEqual(free.rates, { requests: null, tokens: null });
    const refusal = await t.refused(key, { wantTokens: 1_000 });
    assert.ok(refusal.reason === "limited");
    assert.equal(refusal.rates.requests?.remaining, 59);
    // What refills while the machine is busy.
    close(refusal.rates.tokens?.remaining ?? NaN, 900, 50);
  }),
);

Deno.test(
  "last use is written as Unix ms, and all that admissions write expires by itself",
  onStage(async (t) => {
    const limits = { requestsPerMinute: 100, concurrency: 10 };
    const key = await t.world.addKey({ limits, ownerLimits: limits });
    const name = limiterKey(key);
    const use = async () => {
      await t.edge.settle(await t.admitted(key), DONE);
      const lastUsedMs = Number(await t.world.command("HGET", name, "lu"));
      close(lastUsedMs, await t.world.time(), 1_000);
    };
    await use();
    const state = await t.state(key);
    await t.write(key, { ...state, lastAtMs: state.lastAtMs - 60_000 });
    await t.world.command("HSET", name, "lu", "1");
    await use();
    await t.admitted(key);
    const keys = await t.world.command("KEYS", "*");
    assert.ok(Array.isArray(keys));
    const written = keys.map(String).filter((name) =>
      !/^(key:|own:|store$)/.test(name)
    );
    assert.equal(written.length, 6, written.join());
    for (const name of written) {
      assert.ok(Number(await t.world.command("PTTL", name)) > 3_600_000, name);
    }
  }),
);

Deno.test(
  "admit() says for how long an answer is kept if that is a default of the key, whatever else it says",
  onStage(async (t) => {
    const rows: { key: KeyOptions; keepSeconds: number | undefined }[] = [
      // As a version has written it that does not know the default.
      { key: {}, keepSeconds: undefined },
      { key: { keepSeconds: 0 }, keepSeconds: undefined },
      { key: { keepSeconds: 60 }, keepSeconds: 60 },
      { key: { keepSeconds: 3_600, priority: "batch" }, keepSeconds: 3_600 },
    ];
    for (const { key, keepSeconds } of rows) {
      for (const budgetDay of [0, 1_000_000]) {
        const principal = await t.world.addKey({
          ...key,
          limits: { budgetDay },
        });
        const grant = await t.admitted(principal, { wantNanos: 5 });
        assert.equal(grant.keepSeconds, keepSeconds);
        assert.equal(grant.queue?.isBatch, key.priority && true);
        assert.equal(grant.heldNanos, budgetDay > 0 ? 5 : 0);
      }
    }
  }),
);

Deno.test(
  "admit() says how a request waits if its key or account waits unlike others, whatever it holds",
  onStage(async (t) => {
    const rows: { key: KeyOptions; queue: Grant["queue"] }[] = [
      { key: {}, queue: undefined },
      { key: { priority: "normal" }, queue: undefined },
      {
        key: { ownerLimits: { queueWeight: 250 } },
        queue: { weight: 2.5, keyWeight: 1, isBatch: false },
      },
      {
        key: { limits: { queueWeight: 50 }, priority: "batch" },
        queue: { weight: 1, keyWeight: 0.5, isBatch: true },
      },
    ];
    for (const { key, queue } of rows) {
      for (const budgetDay of [0, 1_000_000]) {
        const limits = { ...key.limits, budgetDay };
        const principal = await t.world.addKey({ ...key, limits });
        const ask = { wantNanos: 5 };
        const grant = await t.admitted(principal, ask);
        assert.deepEqual(grant.queue, queue);
        const held = [grant.isHeld, grant.heldNanos];
        assert.deepEqual(held, budgetDay > 0 ? [true, 5] : [false, 0]);
      }
    }
    const key = await t.world.addKey({ limits: { queueWeight: 200 } });
    await t.admitted(key);
    // A weight is no limit: it refuses nothing, and the next request heeds a change.
    await t.world.setKey(key, { queue_weight: "300" });
    assert.equal((await t.admitted(key)).queue?.keyWeight, 3);
  }),
);
