// Three edges under load, in one gateway, because its start costs more than what is
// tested. The promises are in the files of the checks, which the full run
// (tests/support/amount.ts) tries with more requests.
import { checkHostileBodies } from "../hostile/hostile_bodies_checks.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { startRedisServer } from "../support/servers/redis_server.ts";
import { checkConsoleEffect, EDGES } from "./console_effect_checks.ts";

Deno.test("three edges under load", async (t) => {
  // A Redis that waits 150 ms for its disk is answered with 503, as promised: this one
  // has no disk to wait for.
  await using server = await startRedisServer();
  await using gateway = await startGateway("launched", {
    edges: EDGES.length,
    // A deleted key is a wrong one: the load asks with it more often than a stranger
    // may.
    env: { UNKNOWN_KEYS_PER_SECOND: "1000000", REDIS_URL: server.url },
  });

  await t.step(
    "the console takes effect on every edge",
    (t) => checkConsoleEffect(t, gateway),
  );

  await t.step(
    "API4: hostile bodies of four keys at once do not slow down the requests of another",
    () => checkHostileBodies(gateway),
  );
});
