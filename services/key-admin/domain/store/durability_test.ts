import assert from "node:assert/strict";
import { RedisReplyError } from "@gateway/shared/redis/errors";
import type { RedisLink, RedisReply } from "@gateway/shared/redis/link";
import { confirmDurable, detectDurability } from "./durability.ts";

type Answers = Record<string, RedisReply | Error>;

/** A server that answers from a table, since Redis 8 is not installed everywhere. */
function fakeLink(answers: Answers) {
  const sent: string[] = [];
  const link: RedisLink = {
    state: "ready",
    ready: () => Promise.resolve(),
    command: (args) => {
      sent.push(args.join(" "));
      const answer = answers[args[0] ?? ""] ?? null;
      return answer instanceof Error
        ? Promise.reject(answer)
        : Promise.resolve(answer);
    },
    evalScript: () => Promise.reject(new Error("no scripts")),
    close: () => Promise.resolve(),
  };
  return { link, sent };
}

const EVERYSEC = ["appendonly", "yes", "appendfsync", "everysec"];
const ALWAYS = ["appendonly", "yes", "appendfsync", "always"];
const REDIS_8 = hello("redis", "8.0.2");

function hello(server: string, version: string): RedisReply {
  const rest = ["proto", 2, "id", 7, "mode", "standalone", "modules", []];
  return ["server", server, "version", version, ...rest];
}

Deno.test("detectDurability() reports what the server guarantees, and trusts WAITAOF only from Redis 8 on", async (t) => {
  const forbidden = new RedisReplyError("NOPERM", "NOPERM no permissions");
  const file = (server: string, version: string): Answers => ({
    CONFIG: EVERYSEC,
    HELLO: hello(server, version),
  });
  const cases: [name: string, answers: Answers, expected: string][] = [
    ["always", { CONFIG: ALWAYS }, "always"],
    ["no file", { CONFIG: ["appendonly", "no"], HELLO: REDIS_8 }, "none"],
    ["CONFIG forbidden", { CONFIG: forbidden, HELLO: REDIS_8 }, "none"],
    ["Redis 7.4", file("redis", "7.4.7"), "none"],
    ["Redis 8.0", file("redis", "8.0.0"), "waitaof"],
    ["Redis 10.2", file("redis", "10.2.0"), "waitaof"],
    ["Valkey 9.1", file("valkey", "9.1.2"), "none"],
    ["Redis unstable", file("redis", "unstable"), "none"],
  ];
  for (const [name, answers, expected] of cases) {
    await t.step(name, async () => {
      assert.equal(await detectDurability(fakeLink(answers).link), expected);
    });
  }
});

Deno.test("confirmDurable() waits for the disk and checks the answer", async () => {
  const answers = { CONFIG: EVERYSEC, HELLO: REDIS_8 };
  const good = fakeLink({ ...answers, WAITAOF: [1, 0] });
  assert.equal(await confirmDurable(good.link), "waitaof");
  assert.equal(good.sent.at(-1), "WAITAOF 1 0 3000");
  const late = fakeLink({ ...answers, WAITAOF: [0, 0] });
  await assert.rejects(confirmDurable(late.link), { name: "NotDurable" });
});

Deno.test("confirmDurable() waits for as many replicas as the server requires", async (t) => {
  const cases: [wanted: number, reached: number, isConfirmed: boolean][] = [
    [0, 0, true],
    [1, 0, false],
    [2, 1, false],
    [2, 3, true],
  ];
  for (const [wanted, reached, isConfirmed] of cases) {
    await t.step(`${reached} of ${wanted}`, async () => {
      const settings = [...ALWAYS, "min-replicas-to-write", String(wanted)];
      const { link, sent } = fakeLink({ CONFIG: settings, WAIT: reached });
      if (isConfirmed) assert.equal(await confirmDurable(link), "always");
      else await assert.rejects(confirmDurable(link), { name: "NotDurable" });
      const waits = sent.filter((line) => line.startsWith("WAIT "));
      assert.deepEqual(waits, wanted === 0 ? [] : [`WAIT ${wanted} 3000`]);
    });
  }
});
