/** Changes are on disk before they are acknowledged. */
import assert from "node:assert/strict";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { RedisReply } from "@gateway/shared/redis/connection";
import { changedLink } from "../../../../tests/support/servers/redis_link.ts";
import { startRedis } from "../../redis_fixture.ts";
import { createPersist, detectDurability } from "./durability.ts";
import { asFields } from "./redis.ts";

const FILE = ["--appendonly", "yes"];
const EVERYSEC = [...FILE, "--appendfsync", "everysec"];
const ALWAYS = [...FILE, "--appendfsync", "always"];

async function appendfsync(link: RedisLink): Promise<string | undefined> {
  const reply = await link.command(["CONFIG", "GET", "appendfsync"]);
  return asFields(reply).appendfsync;
}

/** A link that notes what is sent, and answers some commands itself. */
function withReplies(link: RedisLink, replies: Record<string, RedisReply>) {
  const commands: string[] = [];
  const command: RedisLink["command"] = (args, options) => {
    commands.push(args.join(" "));
    const reply = replies[args.slice(0, 2).join(" ")] ??
      replies[args[0] ?? ""];
    return reply === undefined
      ? link.command(args, options)
      : Promise.resolve(reply);
  };
  return { link: changedLink(link, { command }), commands };
}

Deno.test("detectDurability() reports what a server guarantees; persist() switches only what it can", async () => {
  const cases: [settings: string[], expected: string][] = [
    [EVERYSEC, "switched"],
    [[...FILE, "--appendfsync", "no"], "switched"],
    [ALWAYS, "always"],
    [["--appendonly", "no"], "none"],
    [[...ALWAYS, "--no-appendfsync-on-rewrite", "yes"], "none"],
  ];
  for (const [settings, expected] of cases) {
    await using redis = await startRedis(settings);
    const { link, commands } = withReplies(await redis.connect(), {});
    const found = await detectDurability(link);
    assert.equal(found, expected, settings.join(" "));
    if (expected === "switched") continue;
    await createPersist(link)();
    assert.ok(!commands.some((line) => /SADD|(always|everysec)$/.test(line)));
  }
  await using redis = await startRedis(EVERYSEC);
  const link = await redis.connect();
  await link.command(["ACL", "SETUSER", "default", "-config|set"]);
  assert.equal(await detectDurability(link), "none", "it may not switch");
  await createPersist(link)();
});

Deno.test("persist() has everything flushed at once, despite the mark of a killed process, and switches back", async () => {
  await using redis = await startRedis(EVERYSEC);
  const { link, commands } = withReplies(await redis.connect(), {});
  await link.command(["SADD", "fsync", "killed"]);
  await link.command(["CONFIG", "SET", "appendfsync", "always"]);
  assert.equal(await detectDurability(link), "switched");
  const persist = createPersist(link);
  await Promise.all(Array.from({ length: 20 }, persist));
  const flushes = commands.flatMap((line, at) =>
    line.startsWith("SADD fsync ") ? [commands.slice(at - 1, at + 3)] : []
  ).slice(1);
  assert.equal(flushes.length, 1, "one for all");
  const [begin, , ...rest] = flushes[0] ?? [];
  const on = ["MULTI", "CONFIG SET appendfsync always", "EXEC"];
  assert.deepEqual([begin, ...rest], on);
  await persist();
  assert.equal(await appendfsync(link), "everysec");
  assert.equal(await link.command(["EXISTS", "fsync"]), 0);
});

Deno.test("persist() flushes again if another process switched back at the same moment", async () => {
  await using redis = await startRedis(EVERYSEC);
  const real = await redis.connect();
  let isFirst = true;
  const command: RedisLink["command"] = async (args, options) => {
    if (args[0] === "SREM" && isFirst) {
      isFirst = false;
      await real.command(["DEL", "fsync"]);
      await real.command(["CONFIG", "SET", "appendfsync", "everysec"]);
    }
    return await real.command(args, options);
  };
  const { link, commands } = withReplies(
    changedLink(real, { command }),
    {},
  );
  await createPersist(link)();
  assert.equal(commands.filter((line) => line.startsWith("SADD")).length, 2);
  assert.equal(await appendfsync(real), "everysec");
});

Deno.test("persist() acknowledges no change that is not on disk or on enough replicas", async () => {
  await using redis = await startRedis(EVERYSEC);
  const real = await redis.connect();
  const unmarked = createPersist(withReplies(real, { SREM: 0 }).link);
  await assert.rejects(unmarked(), { name: "NotDurable" });
  const cases: { replicas: number; reached: number; isConfirmed: boolean }[] = [
    { replicas: 0, reached: 0, isConfirmed: true },
    { replicas: 1, reached: 0, isConfirmed: false },
    { replicas: 1, reached: 1, isConfirmed: true },
    { replicas: 2, reached: 1, isConfirmed: false },
    { replicas: 2, reached: 3, isConfirmed: true },
  ];
  for (const { replicas, reached, isConfirmed } of cases) {
    const settings = [
      "appendonly",
      "yes",
      "appendfsync",
      "always",
      "min-replicas-to-write",
      String(replicas),
    ];
    const replies = { "CONFIG GET": settings, WAIT: reached };
    const { link, commands } = withReplies(real, replies);
    const changed = createPersist(link)();
    if (isConfirmed) await changed;
    else await assert.rejects(changed, { name: "NotDurable" });
    const waits = commands.filter((line) => line.startsWith("WAIT "));
    assert.deepEqual(waits, replicas === 0 ? [] : [`WAIT ${replicas} 3000`]);
  }
});
