// Promise: with the rights that deploy/redis/users.acl gives the console's user, every
// route and every command works. What it may not do is in tests/deploy/store_privilege_test.ts.
import assert from "node:assert/strict";
import { parseCommand } from "./cli/command_line.ts";
import { KEYS } from "./cli/keys.ts";
import { OWNERS } from "./cli/owners.ts";
import { startConsole, type TestConsole } from "./console_fixture.ts";
import { routeCases, routeOwner } from "./routes_fixture.ts";

const USER = "key-admin";
const EMAIL = "ada@example.org";

Deno.test("every route of the console works as the user it is deployed with", async (t) => {
  await using site = await startConsole({ redisUser: USER });
  for (const [n, { route, requests }] of routeCases(site).entries()) {
    await t.step(route, async () => {
      const owner = await routeOwner(site, n);
      for (const { path, form, status } of await requests(site, owner)) {
        const answer = form === null
          ? await owner.client.get(path)
          : await owner.client.post(path, form);
        assert.equal(answer.status, status, site.logLines.at(-1));
      }
    });
  }
});

/** The words for people that a command answers with. */
async function run(
  { deps }: TestConsole,
  area: "keys" | "owners",
  ...args: string[]
): Promise<string> {
  const command = parseCommand(area === "keys" ? KEYS : OWNERS, args);
  const { text } = await command.run({
    ...deps,
    defaultLimits: deps.defaultLimits.key,
    consoleUrl: deps.publicUrl.href,
  });
  return text;
}

Deno.test("every command works as the user it is deployed with", async (t) => {
  await using site = await startConsole({ redisUser: USER });
  const made = await run(site, "keys", "create", "--description", "Ci");
  const id = /key_\w+/.exec(made)?.[0] ?? assert.fail(made);
  const rows: [area: "keys" | "owners", args: string[], says: RegExp][] = [
    ["keys", ["list"], /Ci/],
    ["keys", ["list", "--search", "ci"], /Ci/],
    ["keys", ["show", id], /enabled/],
    ["keys", ["edit", id, "--rpm", "60"], /60 requests/],
    ["keys", ["disable", id, "--stop-running"], /disabled/],
    ["keys", ["enable", id], /enabled/],
    ["keys", ["rotate", id], /replaces/],
    ["keys", ["delete", id], /deleted/],
    ["owners", ["set-up"], /\/link\//],
    ["owners", ["invite", EMAIL], /\/link\//],
    ["owners", ["reset", EMAIL], /\/link\//],
    ["owners", ["limits", EMAIL, "--rpm", "60"], /60 requests/],
    ["owners", ["sign-out", EMAIL], /signed out/],
    ["owners", ["list"], /ada@example.org/],
  ];
  for (const [area, args, says] of rows) {
    await t.step(`${area} ${args.join(" ")}`, async () => {
      assert.match(await run(site, area, ...args), says);
    });
  }
});
