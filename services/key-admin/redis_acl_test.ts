// Promise: every command works with the permissions that deploy/redis/users.acl gives the
// console's user. web/routes_test.ts tests the routes, tests/deploy/store_privilege_test.ts what is denied.
import assert from "node:assert/strict";
import { textOf } from "./cli/answer.ts";
import { parseCommand } from "./cli/command_line.ts";
import { KEYS } from "./cli/keys.ts";
import { OWNERS } from "./cli/owners.ts";
import { startConsole, type TestConsole } from "./console_fixture.ts";

const USER = "key-admin";
const EMAIL = "ada@example.org";

/** The text that a command prints. */
async function run(
  { deps }: TestConsole,
  area: "keys" | "owners",
  ...args: string[]
): Promise<string> {
  const command = parseCommand(area === "keys" ? KEYS : OWNERS, args);
  const answer = await command.run({
    ...deps,
    defaultLimits: deps.defaultLimits.key,
    consoleUrl: deps.publicUrl.href,
  });
  return textOf(answer);
}

Deno.test("every command works as the deployed Redis user", async (t) => {
  await using site = await startConsole({ redisUser: USER });
  const made = await run(site, "keys", "create", "--description", "Ci");
  const id = /key_\w+/.exec(made)?.[0] ?? assert.fail(made);
  const rows: [area: "keys" | "owners", args: string[], says: RegExp][] = [
    ["keys", ["list"], /Ci/],
    ["keys", ["list", "--search", "ci"], /Ci/],
    ["keys", ["show", id], /enabled/],
    ["keys", ["edit", id, "--rpm", "60"], /requests_per_minute 60/],
    ["keys", ["disable", id, "--stop-running"], /disabled/],
    ["keys", ["enable", id], /enabled/],
    ["keys", ["rotate", id], /replaces/],
    ["keys", ["delete", id], /deleted/],
    ["owners", ["set-up"], /\/link\//],
    ["owners", ["invite", EMAIL], /\/link\//],
    ["owners", ["reset", EMAIL], /\/link\//],
    ["owners", ["limits", EMAIL, "--rpm", "60"], /requests_per_minute 60/],
    ["owners", ["sign-out", EMAIL], /signed out/],
    ["owners", ["list"], /ada@example.org/],
  ];
  for (const [area, args, says] of rows) {
    await t.step(`${area} ${args.join(" ")}`, async () => {
      assert.match(await run(site, area, ...args), says);
    });
  }
});
