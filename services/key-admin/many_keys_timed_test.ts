import assert from "node:assert/strict";
import { signIn, startConsole } from "./console_fixture.ts";
import { commandsDuring, listPages, seedKeys } from "./many_keys_fixture.ts";

const EMAIL = "ada@example.org";
/** Enough for a search to stop before the end; `bench/console_pages.ts` measures the promised 100,000. */
const KEYS = 5_000;
/** What a page may cost: 1,000 members of the index looked at, 50 rows of three reads each. */
const COMMANDS_MAX = 1_200;

Deno.test("a page of very many keys takes a bounded number of commands", async (t) => {
  await using site = await startConsole({ settings: ["--appendonly", "no"] });
  await seedKeys(site, await site.addOwner(EMAIL), KEYS);
  const client = site.client();
  await signIn(client, EMAIL);
  for (const [name, path, rows] of await listPages(client, KEYS)) {
    await t.step(name, async () => {
      let page = "";
      const sent = await commandsDuring(site, async () => {
        page = (await client.get(path)).text;
      });
      const shown = new Set(page.match(/\/keys\/key_[0-9A-Za-z]{20}/g));
      assert.equal(shown.size, rows);
      assert.ok(sent.length <= COMMANDS_MAX, `${sent.length}`);
    });
  }
});
