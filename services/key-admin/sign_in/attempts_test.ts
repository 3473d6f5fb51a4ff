import assert from "node:assert/strict";
import { startRedis } from "../redis_fixture.ts";
import { asTexts } from "../store/reply.ts";
import { createAttemptGuard, networkOf } from "./attempts.ts";

Deno.test("networkOf() joins what belongs to one customer", async (t) => {
  const cases: [ip: string, network: string][] = [
    ["192.0.2.1", "192.0.2.1"],
    ["::ffff:192.0.2.1", "192.0.2.1"],
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2"],
    ["2001:db8:1:2::6", "2001:db8:1:2"],
    ["2001:db8::6", "2001:db8:0:0"],
    ["::1", "0:0:0:0"],
    ["fe80::", "fe80:0:0:0"],
  ];
  for (const [ip, network] of cases) {
    await t.step(ip, () => assert.equal(networkOf(ip), network));
  }
});

Deno.test("the wait doubles with each failure and ends with a success", async () => {
  await using server = await startRedis();
  const redis = await server.connect();
  const guard = createAttemptGuard(redis);
  const attempt = { email: "ada@example.org", ip: "192.0.2.1", device: "" };
  const waits: number[] = [];
  for (let tries = 0; tries < 5 + 12; tries++) {
    assert.equal(await guard.take(attempt), 0);
    const waitMs = tries < 4 ? 0 : await guard.take({
      ...attempt,
      ip: `198.51.100.${tries}`,
    });
    waits.push(Math.round(waitMs / 1_000));
    // Time passes: what is remembered is the count, so the pause may be taken away.
    for (const name of asTexts(await redis.command(["KEYS", "try:*"]))) {
      const type = await redis.command(["TYPE", name]);
      if (type === "hash") await redis.command(["HDEL", name, "until"]);
      else await redis.command(["DEL", name]);
    }
  }
  assert.deepEqual(waits.slice(0, 10), [0, 0, 0, 0, 1, 2, 4, 8, 16, 32]);
  assert.equal(Math.max(...waits), 900, "never more than 15 minutes");
  assert.equal(await guard.succeeded(attempt), 16);
  assert.equal(await guard.take(attempt), 0);
  assert.equal(await guard.take(attempt), 0, "free tries again");
});
