/**
 * Guarantee: without Redis no request is admitted and no key is called invalid: 503
 * at once, and service again within two seconds after Redis is back, without a restart.
 */
import assert from "node:assert/strict";
import { hashKey } from "@gateway/shared/keys/record";
import { hashKeyValue } from "@gateway/shared/keys/key";
import { usageCounted } from "../support/admission_fixture.ts";
import {
  type GatedCluster,
  startGatedCluster,
  statusOf,
  type TestKey,
} from "../support/gated_cluster.ts";
import { text } from "../support/scripted_model_server.ts";
import {
  SCHEDULING_ALLOWANCE_MS,
  sleep,
  until,
  waitFor,
} from "../support/wait_for.ts";

/** The promise, for the whole answer to a request. */
const REFUSED_MS = 150;
const RECOVERY_MS = 2_000;
const REQUESTS = 12;

/** Several requests while Redis cannot answer, some by keys this edge never saw. */
async function assertUnavailable(
  cluster: GatedCluster,
  keys: readonly TestKey[],
  requests = REQUESTS,
): Promise<void> {
  for (let count = 0; count < requests; count += 1) {
    const key = keys[count % keys.length];
    assert.ok(key);
    const startedAtMs = performance.now();
    const response = await cluster.ask(key);
    const tookMs = performance.now() - startedAtMs;
    const { error } = await response.json();
    assert.equal(response.status, 503, JSON.stringify(error));
    assert.equal(error.code, "service_unavailable");
    assert.equal(response.headers.get("retry-after"), "1");
    assert.equal(response.headers.get("retry-after-ms"), "1000");
    assert.equal(response.headers.get("x-should-retry"), null);
    const boundMs = REFUSED_MS + SCHEDULING_ALLOWANCE_MS;
    assert.ok(tookMs <= boundMs, `${tookMs} ms`);
  }
  const { edge } = cluster;
  const reasons = edge.log.lines.filter(({ event }) => event === "request")
    .map(({ fields }) => fields.redis);
  assert.equal(typeof reasons.at(-1), "string", "the log says why");
}

async function assertRecovers(cluster: GatedCluster, key: TestKey) {
  const startedAtMs = performance.now();
  await waitFor(async () => await statusOf(cluster.ask(key)) === 200, {
    what: "service after Redis came back",
    timeoutMs: RECOVERY_MS * 2,
    intervalMs: 20,
  });
  const tookMs = performance.now() - startedAtMs;
  assert.ok(tookMs < RECOVERY_MS, `${tookMs} ms`);
}

/** Changes of the link's state since the last look, as `from>to`. */
function stateChanges(cluster: GatedCluster): string[] {
  const { edge } = cluster;
  return edge.log.lines.splice(0).filter(({ event }) => event === "redis_state")
    .map(({ fields }) => `${fields.from}>${fields.to}`);
}

const MAXMEMORY = "CONFIG SET maxmemory";
/** How Redis goes away, how it comes back, and what the link says of it. */
const OUTAGES: {
  name: string;
  begin: (cluster: GatedCluster) => unknown;
  end: (cluster: GatedCluster) => unknown;
  states?: string[];
  /** Looked at for longer than one attempt to find a server that serves. */
  isLong?: true;
}[] = [
  {
    name: "frozen",
    begin: ({ world }) => world.redis.freeze(),
    end: ({ world }) => world.redis.thaw(),
    states: ["ready>stalled", "stalled>ready"],
  },
  {
    name: "slow by 200 ms",
    begin: ({ proxy }) => proxy.set({ delayMs: 200 }),
    end: ({ proxy }) => proxy.set({}),
  },
  ...(["both", "up", "down"] as const).map((blackHole) => ({
    name: `half open: packets are lost ${blackHole}`,
    begin: ({ proxy }: GatedCluster) => proxy.set({ blackHole }),
    end: ({ proxy }: GatedCluster) => proxy.set({}),
  })),
  ...([
    ["a replica", "offline", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"],
    ["out of memory", "refusing", `${MAXMEMORY} 1`, `${MAXMEMORY} 0`],
  ] as const).map(([name, state, begin, end]) => ({
    name,
    begin: ({ world }: GatedCluster) => world.command(...begin.split(" ")),
    end: ({ world }: GatedCluster) => world.command(...end.split(" ")),
    states: [`ready>${state}`, `${state}>ready`],
    isLong: true as const,
  })),
  {
    name: "killed, and started again",
    begin: async ({ world }) => {
      await world.command("SAVE");
      await world.redis.kill();
    },
    end: ({ world }) => world.redis.restart(),
    states: ["ready>offline", "offline>ready"],
  },
];

Deno.test("ASVS 16.5.2, 16.5.3: Redis unavailable in every possible way: 503, never a refusal of the key", async (t) => {
  await using cluster = await startGatedCluster({ redisMsMin: 0 });
  const { world, proxy } = cluster;
  const key = await cluster.addKey({ limits: { concurrency: 100 } });
  const stranger = await cluster.addKey();
  for (const { name, begin, end, states, isLong } of OUTAGES) {
    await t.step(name, async () => {
      await assertRecovers(cluster, key);
      stateChanges(cluster);
      await begin(cluster);
      try {
        await assertUnavailable(cluster, [key, stranger]);
        if (isLong) {
          await sleep(500);
          await assertUnavailable(cluster, [key]);
        }
      } finally {
        // The next steps need Redis.
        await end(cluster);
      }
      await assertRecovers(cluster, key);
      await cluster.settled(key);
      // The link believes in the server's return when it has tried it.
      await waitFor(() => cluster.edge.redis.state === "ready", {
        what: "the link to say that Redis is back",
        timeoutMs: RECOVERY_MS,
      });
      const changes = stateChanges(cluster);
      if (states !== undefined) assert.deepEqual(changes, states);
      else assert.match(changes.at(-1) ?? "", />ready$/);
    });
  }

  await t.step("slow by 70 ms, or without its scripts", async () => {
    proxy.set({ delayMs: 35 });
    for (let count = 0; count < REQUESTS; count += 1) {
      const newcomer = await cluster.addKey();
      assert.equal(await statusOf(cluster.ask(newcomer)), 200);
    }
    proxy.set({});
    await world.command("SCRIPT", "FLUSH");
    const statuses = await Promise.all(
      Array.from({ length: 20 }, () => statusOf(cluster.ask(key))),
    );
    assert.deepEqual(new Set(statuses), new Set([200]));
    assert.deepEqual(stateChanges(cluster), []);
  });
});

Deno.test("requests that run when Redis goes and comes back end well and are settled once", async () => {
  await using cluster = await startGatedCluster({ onCall: () => {} });
  const key = await cluster.addKey({ limits: { concurrency: 100 } });
  const answers = Array.from(
    { length: 20 },
    () => cluster.ask(key, { body: { stream: true } }),
  );
  await until(() => cluster.backend.calls.length === answers.length);
  await cluster.world.redis.freeze();
  for (const call of cluster.backend.calls) {
    call.say(text("pong"));
    call.end();
  }
  for (const answer of answers) {
    assert.match(await (await answer).text(), /\[DONE\]/);
  }
  await sleep(300);
  cluster.world.redis.thaw();
  await cluster.settled(key, RECOVERY_MS + 1_000);
  assert.equal((await usageCounted(cluster.world, key)).requests, 20);
});

Deno.test("corrupt data in Redis is a fault and no outage: 500, its cause in the log, nothing held", async (t) => {
  await using cluster = await startGatedCluster();
  const { world } = cluster;
  const key = await cluster.addKey({ limits: { concurrency: 100 } });
  const { keyId, ownerId, value } = key;
  const record = `key:{${ownerId}}:${keyId}`;
  const owner = `own:{${ownerId}}`;
  const entry = hashKey(hashKeyValue(value));
  const faults: readonly [name: string, command: readonly string[]][] = [
    ["a limit in words", ["HSET", record, "rpm", "many"]],
    ["an infinite limit", ["HSET", record, "tpm", "inf"]],
    ["a limit that is no number", ["HSET", record, "conc", "nan"]],
    ["a limit beyond all numbers", ["HSET", record, "tpd", "1e300"]],
    ["half a request", ["HSET", record, "rpm", "0.5"]],
    ["an owner's limit in words", ["HSET", owner, "rpm", "many"]],
    ["an expiry that is no number", ["HSET", record, "expires_at", "nan"]],
    ["a record of another type", ["SET", record, "text"]],
    ["an owner's leases of another type", ["SET", `lease:{${ownerId}}`, "x"]],
  ];
  const names = [record, owner, `lease:{${ownerId}}`, entry];
  await world.command("HSET", owner, "rpm", "0", "conc", "90");
  const { edge } = cluster;
  for (const [name, command] of faults) {
    await t.step(name, async () => {
      for (const each of names) {
        await world.command("COPY", each, `kept:${each}`);
      }
      await world.command(...command);
      edge.log.lines.splice(0);
      const response = await cluster.ask(key);
      const { error } = await response.json();
      assert.equal(response.status, 500, JSON.stringify(error));
      assert.equal(error.code, "internal_error");
      const fault = edge.log.lines.find(({ event }) =>
        event === "request_fault"
      );
      assert.match(String(fault?.fields.error), /corrupt|WRONGTYPE/);
      for (const each of names) {
        await world.command("DEL", each);
        await world.command("COPY", `kept:${each}`, each);
      }
      await cluster.settled(key);
      assert.equal(await statusOf(cluster.ask(key)), 200);
      assert.equal(edge.redis.state, "ready");
    });
  }
  await t.step("an unreadable expiry is not for ever", async () => {
    await world.command("HSET", record, "expires_at", "nan");
    const headers = { authorization: `Bearer ${value}` };
    const models = `${edge.baseUrl}/models`;
    assert.equal(await statusOf(fetch(models, { headers })), 500);
  });
  await t.step("the entry of a key's hash", async () => {
    const other = await cluster.addKey();
    await world.command("DEL", hashKey(hashKeyValue(other.value)));
    await world.command("LPUSH", hashKey(hashKeyValue(other.value)), "x");
    assert.equal(await statusOf(cluster.ask(other)), 500);
  });
});

Deno.test("a key that was deleted is forgotten, and asked for once more", async () => {
  await using cluster = await startGatedCluster();
  const key = await cluster.addKey();
  assert.equal(await statusOf(cluster.ask(key)), 200);
  const { keyId, ownerId, value } = key;
  await cluster.world.command("DEL", `key:{${ownerId}}:${keyId}`);
  await cluster.world.command("DEL", hashKey(hashKeyValue(value)));
  assert.equal(await statusOf(cluster.ask(key)), 401);
  const { edge } = cluster;
  assert.equal(edge.keys.remembered(hashKeyValue(value)), undefined);
  assert.equal(await statusOf(cluster.ask(key)), 401);
  assert.equal(edge.keys.remembered(hashKeyValue(value)), null);
});
