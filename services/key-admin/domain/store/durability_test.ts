import assert from "node:assert/strict";
import type { RedisLink, RedisReply } from "@gateway/shared/redis/link";
import { startRedis, type TestRedis } from "../../redis_fixture.ts";
import { detectDurability, durably } from "./durability.ts";
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
  const sent: string[] = [];
  const command: RedisLink["command"] = (args, options) => {
    sent.push(args.join(" "));
    const reply = replies[args.slice(0, 2).join(" ")] ??
      replies[args[0] ?? ""];
    return reply === undefined
      ? link.command(args, options)
      : Promise.resolve(reply);
  };
  return { link: { ...link, command }, sent };
}

const change = (link: RedisLink, key = "changed") =>
  link.command(["SET", key, "1"]);

/** A user who may change everything but the server's settings. */
async function withoutSettings(redis: TestRedis): Promise<RedisLink> {
  const link = await redis.connect();
  const rights = ["on", "nopass", "~*", "+@all", "-config|set"];
  await link.command(["ACL", "SETUSER", "default", ...rights]);
  return link;
}

Deno.test("detectDurability() reports what the server can guarantee", async (t) => {
  const cases: [name: string, settings: string[], expected: string][] = [
    ["every second", EVERYSEC, "switched"],
    ["never flushed", [...FILE, "--appendfsync", "no"], "switched"],
    ["always", ALWAYS, "always"],
    ["no file", ["--appendonly", "no"], "none"],
  ];
  for (const [name, settings, expected] of cases) {
    await t.step(name, async () => {
      await using redis = await startRedis(settings);
      assert.equal(await detectDurability(await redis.connect()), expected);
    });
  }
  await t.step("no permission to switch", async () => {
    await using redis = await startRedis(EVERYSEC);
    const link = await withoutSettings(redis);
    assert.equal(await detectDurability(link), "none");
    assert.equal(await durably(link, () => change(link)), "OK");
  });
});

Deno.test("durably() has every write flushed while a change is made, however many overlap", async () => {
  await using redis = await startRedis(EVERYSEC);
  const links = await Promise.all([redis.connect(), redis.connect()]);
  const [first, second] = links;
  const isFirstDone = Promise.withResolvers<void>();
  const both = links.map((link) =>
    durably(link, async () => {
      assert.equal(await appendfsync(link), "always");
      await change(link);
      if (link === second) await isFirstDone.promise;
      assert.equal(await appendfsync(link), "always", "the other is not done");
    })
  );
  await both[0];
  assert.equal(await detectDurability(first), "switched");
  isFirstDone.resolve();
  await both[1];
  assert.equal(await appendfsync(first), "everysec");
  assert.equal(await first.command(["EXISTS", "fsync"]), 0);
});

Deno.test("durably() switches back after a refused change, and despite the mark of a killed process", async () => {
  await using redis = await startRedis(EVERYSEC);
  const link = await redis.connect();
  await link.command(["ZADD", "fsync", String(Date.now() - 31_000), "killed"]);
  await link.command(["CONFIG", "SET", "appendfsync", "always"]);
  const refused = () => Promise.reject(new Error("refused"));
  await assert.rejects(durably(link, refused), /refused/);
  assert.equal(await appendfsync(link), "everysec");
});

Deno.test("durably() flushes again if somebody switched back in the meantime", async () => {
  await using redis = await startRedis(EVERYSEC);
  const other = await redis.connect();
  const { link, sent } = withReplies(await redis.connect(), {});
  await durably(link, async () => {
    await change(link);
    await other.command(["DEL", "fsync"]);
    await other.command(["CONFIG", "SET", "appendfsync", "everysec"]);
  });
  const words = sent.map((line) => line.split(" ")[0]);
  assert.equal(words.filter((word) => word === "ZADD").length, 2);
  assert.ok(words.lastIndexOf("ZADD") < words.lastIndexOf("ZSCORE"));
  assert.equal(await appendfsync(other), "everysec");
});

Deno.test("durably() leaves a server alone that flushes every write", async () => {
  await using redis = await startRedis(ALWAYS);
  const { link, sent } = withReplies(await redis.connect(), {});
  await durably(link, () => change(link));
  assert.ok(!sent.some((line) => /ZADD|(always|everysec)$/.test(line)));
  assert.equal(await appendfsync(link), "always");
});

Deno.test("durably() acknowledges no change that is not on disk or on enough replicas", async (t) => {
  await using redis = await startRedis(EVERYSEC);
  const real = await redis.connect();
  await t.step("not on disk", async () => {
    const { link } = withReplies(real, { ZSCORE: null });
    await assert.rejects(durably(link, () => change(link)), {
      name: "NotDurable",
    });
  });
  const cases: [wanted: number, reached: number, isConfirmed: boolean][] = [
    [0, 0, true],
    [1, 0, false],
    [1, 1, true],
    [2, 1, false],
    [2, 3, true],
  ];
  for (const [wanted, reached, isConfirmed] of cases) {
    await t.step(`on ${reached} of ${wanted} replicas`, async () => {
      const settings = [
        ...["appendonly", "yes", "appendfsync", "always"],
        ...["min-replicas-to-write", String(wanted)],
      ];
      const { link, sent } = withReplies(real, {
        "CONFIG GET": settings,
        WAIT: reached,
      });
      const changed = durably(link, () => change(link));
      if (isConfirmed) await changed;
      else await assert.rejects(changed, { name: "NotDurable" });
      const waits = sent.filter((line) => line.startsWith("WAIT "));
      assert.deepEqual(waits, wanted === 0 ? [] : [`WAIT ${wanted} 3000`]);
    });
  }
});
