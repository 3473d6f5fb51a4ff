// Promise: `deploy/secrets.sh load` makes all servers read their users and passwords.
import assert from "node:assert/strict";
import {
  loadUsers,
  makeSecrets,
  startDeployedRedis,
} from "../support/deployed/deployed_stores.ts";

Deno.test("all servers load a rotated password, also the operator's", async () => {
  await using secrets = await makeSecrets();
  await using redis = await startDeployedRedis(secrets);
  const load = () => loadUsers({ secrets, redis });
  await secrets.run("rotate", "redis-operator");
  const expected = "kill -s HUP nats,kill -s HUP nats-2,redis,OK,redis-2,OK,";
  assert.equal((await load()).split(/\n+/).join(), expected);
  await secrets.run("retire");
  await load();
  // After two changes, nobody has the password that the server knows.
  for (const _ of "12") await secrets.run("rotate", "redis-operator");
  await assert.rejects(load(), /WRONGPASS/);
});
