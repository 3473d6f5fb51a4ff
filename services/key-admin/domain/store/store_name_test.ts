import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { keysKey, STORE_KEY } from "@gateway/shared/keys/record";
import { startRedis } from "../../redis_fixture.ts";
import { ownersKey } from "./names.ts";
import { nameOldStore } from "./store_name.ts";

Deno.test("nameOldStore() names a store with keys, once, and leaves one without them alone", async () => {
  await using server = await startRedis();
  const redis = await server.connect();
  const name = () => redis.command(["GET", STORE_KEY]);
  assert.equal(await nameOldStore(redis, randomBytes), false);
  const owners = Array.from({ length: 5 }, (_, at) => `own_${at}`);
  for (const [at, owner] of owners.entries()) {
    await redis.command(["ZADD", ownersKey, String(at), owner]);
  }
  assert.equal(await nameOldStore(redis, randomBytes), false);
  assert.equal(await name(), null, "owners alone may be of this start");
  await redis.command(["ZADD", keysKey("own_4"), "1", "key_a"]);
  assert.equal(await nameOldStore(redis, randomBytes), true);
  const given = await name();
  assert.match(String(given), /^sto_[0-9A-Za-z]{20}$/);
  assert.equal(await nameOldStore(redis, randomBytes), false);
  assert.equal(await name(), given);
});
