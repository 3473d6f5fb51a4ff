// Promise: when Redis fails over to a replica, the edges find the new master by
// themselves, within two seconds of the address leading there. Only admissions that had
// not reached the replica may be given out again. What had reached it holds: limits,
// disabled and deleted keys, the slots of running requests.
import assert from "node:assert/strict";
import { hashKey, limiterKey, recordKey } from "@gateway/shared/keys/record";
import { hashKeyValue } from "@gateway/shared/keys/key";
import { readState } from "../support/admission_fixture.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { TestKey } from "../support/gateway/limited.ts";
import { startRedisServer } from "../support/redis_server.ts";
import { hello } from "../support/scripted_model_server.ts";
import { startTcpProxy } from "../support/tcp_proxy.ts";
import { sleep, until } from "../support/wait_for.ts";

const EDGES = 4;
const CLIENTS = 12;
const PER_MINUTE = 300;
const INTERVAL_MS = 60_000 / PER_MINUTE;
const RECOVERY_MS = 2_000;
const PATIENT_MS = 30_000;

Deno.test("the master is lost, its replica takes over", async () => {
  let movedTo: number | null = null;
  await using gateway = await startGateway("limited", {
    edges: EDGES,
    redisAt: (port) => movedTo ?? port,
    onCall: (call) =>
      call.request.messages[0]?.content === "hold"
        ? call.say("held")
        : hello(call),
  });
  const { world, backend } = gateway;
  const assertOnEveryEdge = async (key: TestKey, status: number) => {
    for (let edge = 0; edge < EDGES; edge += 1) {
      assert.equal(await gateway.status(key, { edge }), status);
    }
  };
  /** Between the replica and its master. */
  await using wire = startTcpProxy(world.redis.port);
  // Copies begin at once, not after waiting for further replicas.
  await world.command("CONFIG", "SET", "repl-diskless-sync-delay", "0");
  const config = `replicaof 127.0.0.1 ${wire.port}`;
  await using replica = await startRedisServer({ config });
  const link = await world.open(replica.url);
  const command = (...args: string[]) =>
    link.command(args, { deadlineMs: PATIENT_MS });
  const info = async () => String(await command("INFO", "replication"));
  await until(async () => /master_link_status:up/.test(await info()));
  const limits = { requestsPerMinute: PER_MINUTE };
  const key = await gateway.addKey({ limits });
  const slots = await gateway.addKey({ limits: { concurrency: 2 } });
  const disabled = await gateway.addKey();
  const deleted = await gateway.addKey();
  for (const each of [disabled, deleted]) await assertOnEveryEdge(each, 200);
  await world.setKey(disabled, { state: "disabled" });
  await world.command("DEL", recordKey(deleted));
  await world.command("DEL", hashKey(hashKeyValue(deleted.value)));
  const hold = { stream: true, messages: [{ role: "user", content: "hold" }] };
  const held = await Promise.all(
    [0, 1].map((edge) => gateway.ask(slots, { edge, body: hold })),
  );
  assert.equal(await gateway.status(key), 200);
  const began = await readState(world, limiterKey(key)) ?? assert.fail();
  const offsetIn = (text: unknown) =>
    Number(/master_repl_offset:(\d+)/.exec(String(text))?.[1]);
  const wanted = offsetIn(await world.command("INFO", "replication"));
  await until(async () => offsetIn(await info()) >= wanted);

  const statuses: number[] = [];
  const count = (status: number) => statuses.filter((s) => s === status).length;
  let isOver = false;
  const pressing = Array.from({ length: CLIENTS }, async (_, index) => {
    while (!isOver) {
      const status = await gateway.status(key, { edge: index % EDGES });
      statuses.push(status);
      if (status !== 200) await sleep(5);
    }
  });
  await using clients = new AsyncDisposableStack();
  clients.defer(async () => {
    isOver = true;
    await Promise.all(pressing);
  });
  await until(() => count(200) > 50);
  // What is admitted from now on has no copy.
  wire.set({ blackHole: "both" });
  const seen = count(200);
  await until(() => count(200) > seen + 50);
  await world.redis.kill();
  wire.cut();
  await command("REPLICAOF", "NO", "ONE");
  const copied = await readState({ command }, limiterKey(key)) ?? assert.fail();
  await until(() => count(503) > 2 * CLIENTS);
  const lost = count(200) -
    Math.round((copied.requestsTatMs - began.requestsTatMs) / INTERVAL_MS);
  assert.ok(lost > 0, `${lost} lost`);

  movedTo = replica.port;
  // Every edge is answered by Redis again, in time.
  await Promise.all(gateway.edges.map((_, edge) =>
    until(
      async () => await gateway.status(slots, { edge }) !== 503,
      RECOVERY_MS,
    )
  ));
  await assertOnEveryEdge(disabled, 403);
  await assertOnEveryEdge(deleted, 401);
  await assertOnEveryEdge(slots, 429);
  await until(() => statuses.at(-1) === 429);
  await clients.disposeAsync();
  const spanMs = performance.timeOrigin + performance.now() - began.lastAtMs;
  const due = PER_MINUTE + Math.ceil(spanMs / INTERVAL_MS);
  const admitted = count(200) + 1;
  assert.ok(admitted <= due + lost, `${admitted} of ${due} and ${lost} lost`);
  // An outage of Redis is 503 and nothing else.
  assert.deepEqual(new Set(statuses), new Set([200, 429, 503]));

  for (const answer of held) await answer.body?.cancel();
  await until(async () => await gateway.status(slots) === 200);
  assert.ok(backend.calls.length >= admitted);
});
