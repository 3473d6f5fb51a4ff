import assert from "node:assert/strict";
import {
  PASSWORD,
  signIn,
  startConsole,
  type TestConsole,
} from "../console_fixture.ts";
import { parseCommandLine } from "./command_line.ts";
import { runOwnersCommand } from "./owners.ts";

const ADA = "ada@example.org";

async function run({ deps }: TestConsole, ...args: string[]) {
  const answer = await runOwnersCommand(
    { ...deps, consoleUrl: "https://console.test" },
    parseCommandLine(args),
  );
  return { ...answer, said: JSON.stringify(answer.json) };
}

const pathOf = (text: string) =>
  /https:\/\/console\.test(\S+)/.exec(text)?.[1] ?? "";

Deno.test("owners invite: the link makes an owner who can sign in", async () => {
  await using site = await startConsole();
  const path = pathOf((await run(site, "invite", "Ada@Example.org")).text);
  const client = site.client();
  const form = { email: ADA, new_password: PASSWORD };
  assert.equal((await client.post(path, form)).status, 303);
  assert.equal((await signIn(site.client(), ADA)).status, 303);
  await assert.rejects(run(site, "invite", ADA), /can sign in already/);
});

Deno.test("owners set-up works until the console is set up", async () => {
  await using site = await startConsole();
  const path = pathOf((await run(site, "set-up")).text);
  const form = { email: ADA, new_password: PASSWORD };
  assert.equal((await site.client().post(path, form)).status, 303);
  await assert.rejects(
    run(site, "set-up"),
    /is set up: its first owner is ada/,
  );
});

Deno.test("owners reset: a new password, and the old one and its sessions are over", async () => {
  await using site = await startConsole();
  const old = await site.signedIn(ADA);
  const path = pathOf((await run(site, "reset", ADA)).text);
  const fresh = site.client();
  await fresh.post(path, { email: ADA, new_password: "quite another phrase" });
  assert.equal((await fresh.get("/keys")).status, 200);
  const log = await fresh.get("/audit?action=account.");
  assert.match(log.text, /Created a password reset link.*command line/s);
  assert.equal((await old.get("/keys")).status, 302);
  assert.equal((await signIn(site.client("192.0.2.9"), ADA)).status, 401);
});

Deno.test("owners list, limits and sign-out", async () => {
  await using site = await startConsole();
  const client = await site.signedIn(ADA);
  assert.match((await run(site, "list")).said, /ada@example.org.*true/);
  assert.match((await run(site, "limits", ADA)).text, /none$/);
  await run(site, "limits", ADA, "--rpm", "60", "--concurrency", "4");
  const { said } = await run(site, "limits", ADA, "--rpm", "0");
  assert.match(said, /"requests_per_minute":0.*"concurrency":4/);
  await run(site, "sign-out", ADA);
  assert.equal((await client.get("/keys")).status, 302);
});

Deno.test("owners: mistakes are explained", async (t) => {
  await using site = await startConsole();
  await site.addOwner(ADA);
  const cases: [args: string[], says: RegExp][] = [
    [[], /Which command/],
    [["promote", ADA], /no command/],
    [["invite"], /e-mail/],
    [["invite", "x"], /e-mail/],
    [["reset", "no@example.org"], /no owner/],
    [["list", ADA], /Unexpected "ada/],
    [["invite", ADA, "--rpm", "5"], /no option --rpm/],
    [["limits", ADA, "--rpm", "9999999"], /At most/],
  ];
  for (const [args, says] of cases) {
    await t.step(args.join(" "), async () => {
      await assert.rejects(async () => await run(site, ...args), says);
    });
  }
});
