import assert from "node:assert/strict";
import { performance } from "node:perf_hooks";
import { signIn, startConsole } from "./console_fixture.ts";
import { commandsDuring, listPages, seedKeys } from "./many_keys_fixture.ts";

const EMAIL = "ada@example.org";
/** A fifth of what is promised, see `bench/console_pages.ts`: the costs hardly grow with it. */
const KEYS = 20_000;
const ROUNDS = 20;
const P95_MS_MAX = 200;
/** What a page may cost: 1,000 members of the index looked at, 50 rows of three reads each. */
const COMMANDS_MAX = 1_200;

Deno.test("pages of very many keys are quick, with a bounded number of commands each", async (t) => {
  await using site = await startConsole({ settings: ["--appendonly", "no"] });
  await seedKeys(site, await site.addOwner(EMAIL), KEYS);
  const client = site.client();
  await signIn(client, EMAIL);
  for (const [name, path, rows] of await listPages(client, KEYS)) {
    await t.step(name, async () => {
      const first = await client.get(path);
      const shown = new Set(first.text.match(/\/keys\/key_[0-9A-Za-z]{20}/g));
      assert.equal(shown.size, rows);
      const times: number[] = [];
      const sent = await commandsDuring(site, async () => {
        for (let round = 0; round < ROUNDS; round++) {
          const startMs = performance.now();
          assert.equal((await client.get(path)).status, 200);
          times.push(performance.now() - startMs);
        }
      });
      assert.ok(sent.length <= ROUNDS * COMMANDS_MAX, `${sent.length}`);
      const p95 = times.toSorted((a, b) => a - b)[Math.ceil(0.95 * ROUNDS) - 1];
      assert.ok((p95 ?? Infinity) < P95_MS_MAX, `p95 ${p95} ms`);
    });
  }
});
