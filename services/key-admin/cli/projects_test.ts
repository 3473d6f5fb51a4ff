/** Projects on the command line, with the permissions of the deployed Redis user. */
import assert from "node:assert/strict";
import { startConsole, type TestConsole } from "../console_fixture.ts";
import { commandDeps, runCommand } from "./commands_fixture.ts";
import { KEYS } from "./keys.ts";
import { OWNERS } from "./owners.ts";
import { PROJECTS } from "./projects.ts";

/** Runs a command, and returns its answer as `--json` and without. */
const run = (site: TestConsole, line: string) =>
  runCommand(
    { keys: KEYS, owners: OWNERS, projects: PROJECTS },
    line.split(" "),
    commandDeps(site),
  );

Deno.test("projects: created, filled, limited, disabled and listed by commands", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  await site.addOwner("ada@example.org");
  await site.addOwner("bob@example.org");
  const create = "projects create --name Search --admin ada@example.org";
  const { json: { id } } = await run(site, create);
  assert.match(String(id), /^prj_\w{20}$/);
  const { text: added } = await run(
    site,
    "projects add Search --member bob@example.org",
  );
  assert.match(added, /ada@example.org +admin\n.*bob@example.org +member/);
  const role = "projects role Search --member bob@example.org --role admin";
  assert.match((await run(site, role)).text, /bob@example.org +admin/);
  const remove = "projects remove Search --member ada@example.org";
  assert.doesNotMatch((await run(site, remove)).text, /ada/);
  const { json: limited } = await run(site, "projects limits Search --rpm 60");
  assert.match(JSON.stringify(limited), /"requests_per_minute":60/);
  await run(site, `projects rename ${id} --name Finder`);
  const { text: stopped } = await run(
    site,
    "projects disable Finder --stop-running",
  );
  assert.match(stopped, /state +disabled/);
  const { text: list } = await run(site, "projects list --search find");
  assert.match(list, /NAME.*\n.*Finder +disabled.* 1 +0 +0/);
  assert.match((await run(site, "projects enable Finder")).text, /enabled/);
});

Deno.test("keys: --project creates and lists the keys of a project, and an id finds them", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const { json: { id } } = await run(site, "projects create --name Search");
  const make = "keys create --description Ci --project Search";
  const { json: made } = await run(site, make);
  assert.equal(made.owner_id, id);
  assert.equal(made.created_by, null);
  const { text } = await run(site, `keys list --project ${id}`);
  assert.match(text, new RegExp(String(made.id)));
  const { json: shown } = await run(site, `keys disable ${made.id}`);
  assert.deepEqual([shown.owner_id, shown.state], [id, "disabled"]);
  const mine = await run(site, "keys list");
  assert.deepEqual(mine.json.keys, [], "no key of the first owner");
});

const MISTAKES = [
  { line: "projects create", why: /--name: Say what/ },
  { line: "projects create --name \u0007", why: /--name: / },
  { line: "projects create --name A --admin x@y.zz", why: /no owner x@y\.zz/ },
  { line: "projects show Nothing", why: /no project Nothing.*projects list/ },
  { line: "projects add Twin --member bob@x.org", why: /Several.*prj_.*prj_/ },
  { line: "projects add One", why: /--member: Say who/ },
  { line: "projects add One --member a@b.cc", why: /no owner a@b\.cc/ },
  { line: "projects role One --role boss", why: /--role: Roles are admin/ },
  { line: "keys list --project Nothing", why: /no project Nothing/ },
  {
    line: "keys list --project One --owner a@b.cc",
    why: /A key has one account/,
  },
] as const;

Deno.test("projects: mistakes are named, and change nothing", async (t) => {
  await using site = await startConsole({ redisUser: "key-admin" });
  for (const name of ["One", "Twin", "Twin"]) {
    await run(site, `projects create --name ${name}`);
  }
  const before = await site.stored();
  for (const { line, why } of MISTAKES) {
    await t.step(JSON.stringify(line), async () => {
      const message = await run(site, line).then(
        () => assert.fail("it was accepted"),
        (error: Error) => error.message,
      );
      assert.match(message, why);
    });
  }
  assert.deepEqual(await site.stored(), before);
});
