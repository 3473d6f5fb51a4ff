/** Modules of scripts, as Redis runs them. */
import assert from "node:assert/strict";
import { startRedisServer } from "../../tests/support/servers/redis_server.ts";
import { testRedisLink } from "../../tests/support/servers/redis_link.ts";
import { defineScript } from "./link.ts";
import { eagerModule, lazyModule } from "./lua_modules.ts";

/** Notes that it is made, and counts its calls. */
const COUNTER = `
-- Constants: STEP
redis.call('RPUSH', KEYS[1], 'made')
local count = 0

local function add()
  count = count + STEP
  return count
end

return { add = add }
`;

/** For a server that is up, on a busy machine. */
const PATIENT_MS = 30_000;

/** A link that is ready, and is closed with the test. */
async function openReady(url: string) {
  const link = testRedisLink({ url }, { deadlineMs: PATIENT_MS });
  await link.ready(PATIENT_MS);
  return Object.assign(link, { [Symbol.asyncDispose]: () => link.close() });
}

interface ModuleCase {
  readonly title: string;
  readonly text: string;
  readonly reply: unknown;
  /** How often the module is made in two calls. */
  readonly made: number;
}

const CASES: readonly ModuleCase[] = [
  {
    title: "an eager module is made for each call",
    text: `${eagerModule("COUNTER", COUNTER)} return 0`,
    reply: 0,
    made: 2,
  },
  {
    title: "an eager module keeps its variables during a call",
    text: `${
      eagerModule("COUNTER", COUNTER)
    } COUNTER.add() return COUNTER.add()`,
    reply: 4,
    made: 2,
  },
  {
    title: "a lazy module that is not needed is not made",
    text: `${lazyModule("COUNTER", COUNTER)} return 0`,
    reply: 0,
    made: 0,
  },
  {
    title: "a lazy module is made once in a call, and keeps its variables",
    text: `${
      lazyModule("COUNTER", COUNTER)
    } COUNTER().add() return COUNTER().add()`,
    reply: 4,
    made: 2,
  },
];

for (const { title, text, reply, made } of CASES) {
  Deno.test(title, async () => {
    await using redis = await startRedisServer();
    await using link = await openReady(redis.url);
    const script = defineScript("counter", text, { STEP: 2 });
    for (let call = 0; call < 2; call += 1) {
      assert.equal(await link.evalScript(script, { keys: ["log"] }), reply);
    }
    assert.equal(await link.command(["LLEN", "log"]), made);
  });
}

Deno.test("constants stand for names, not for fields or parts of names", async () => {
  await using redis = await startRedisServer();
  await using link = await openReady(redis.url);
  const text = "local t = {} t.MAX, t.MAX_AGE = 1, 2 " +
    "return { MAX, t.MAX, t.MAX_AGE, KIND }";
  const constants = { MAX: 3, KIND: "day" };
  const script = defineScript("names", text, constants);
  assert.deepEqual(await link.evalScript(script, {}), [3, 1, 2, "day"]);
});

Deno.test("a text without a module is refused", () => {
  for (const make of [eagerModule, lazyModule]) {
    assert.throws(() => make("NONE", "local a = 1"), /No module/);
  }
});
