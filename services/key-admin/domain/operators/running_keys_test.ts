/** The keys of an owner with running requests, and the orders to stop them. */
import assert from "node:assert/strict";
import { leaseKey, stopKey } from "@gateway/shared/keys/record";
import { startConsole, storedKey } from "../../console_fixture.ts";
import { dropStopOrders, runningKeys } from "./running_keys.ts";

Deno.test("the keys with a lease run something, however many keys the owner has", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const { owners, redis } = site.deps;
  const administrator = await site.server.connect();
  const ownerId = await owners.ensure("ada@example.org");
  const ids: string[] = [];
  // More than are looked at together.
  for (let n = 0; n < 201; n += 1) {
    const { id } = await storedKey(site, ownerId, { description: `Key ${n}` });
    ids.push(id);
  }
  assert.deepEqual(await runningKeys(redis, ownerId), []);
  const running = [ids[0], ids[200]].map((keyId = "") => ({ keyId, ownerId }));
  for (const principal of running) {
    await administrator.command(["ZADD", leaseKey(principal), "1", "a"]);
  }
  const found = await runningKeys(redis, ownerId);
  assert.deepEqual(found, running.toReversed());
});

Deno.test("an owner who is enabled has no orders to stop, but a disabled key keeps its own", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const { owners, keys } = site.deps;
  const administrator = await site.server.connect();
  const ownerId = await owners.ensure("ada@example.org");
  const orders: string[] = [];
  for (const description of ["On", "Off"]) {
    const { id: keyId } = await storedKey(site, ownerId, { description });
    const order = stopKey({ keyId, ownerId });
    await administrator.command(["HSET", order, "at", "1"]);
    orders.push(order);
    const actor = { by: "test", ip: "" };
    if (description === "On") continue;
    await keys.disable({ ownerId, keyId, version: null, actor });
  }
  await dropStopOrders(site.deps, ownerId);
  const left = await Promise.all(
    orders.map((order) => administrator.command(["EXISTS", order])),
  );
  assert.deepEqual(left, [0, 1]);
});
