/**
 * Guarantee: who belongs to a project is decided at one place, in one moment: nobody
 * gives themselves rights, and a project does not lose its last admin by mistake.
 */
import assert from "node:assert/strict";
import { startConsole, storedKey } from "../../console_fixture.ts";
import { entries } from "../../routes_fixture.ts";
import { UNLIMITED } from "@gateway/shared/keys/record";
import { PROJECT_LIMITS, projectName, type Role } from "./project_record.ts";
import type { ProjectActor } from "./project_store.ts";
import type { ProjectRefusal } from "./project_refused.ts";

const NAMES = ["ada", "bob", "eve"] as const;
type Name = typeof NAMES[number];
const OPERATOR: ProjectActor = {
  by: "op@example.org",
  ip: "192.0.2.9",
  ownerId: null,
  as: "operator",
};

/** A project of Ada, an admin, and Bob, a member; Eve is a stranger. */
async function startProject() {
  const site = await startConsole({ redisUser: "key-admin" });
  const { projects } = site.deps;
  const ids = { ada: "", bob: "", eve: "" };
  for (const name of NAMES) {
    ids[name] = await site.addOwner(`${name}@example.org`);
  }
  const as = (name: Name): ProjectActor => ({
    by: `${name}@example.org`,
    ip: "192.0.2.7",
    ownerId: ids[name],
    as: "member",
  });
  const { id } = await projects.create(as("ada"), {
    name: "Search",
    adminId: ids.ada,
  });
  const bob = { memberId: ids.bob, role: "member" } as const;
  await projects.addOwner(as("ada"), id, bob);
  /** The members, as `ada: admin, bob: member`. */
  const members = async () => {
    const all = await projects.members(id);
    return all.map(({ ownerId, role }) =>
      `${NAMES.find((name) => ids[name] === ownerId)}: ${role}`
    ).join(", ");
  };
  return { site, projects, id, ids, as, members };
}

const refused = (reason: ProjectRefusal) => ({
  name: "ProjectRefused",
  reason,
});

interface Refusal {
  who: Name | "op";
  what: "add" | "role" | "remove";
  whom: Name;
  role?: Role;
  reason: ProjectRefusal;
}

const REFUSALS: readonly Refusal[] = [
  { who: "bob", what: "add", whom: "eve", reason: "not_admin" },
  { who: "bob", what: "role", whom: "bob", role: "admin", reason: "not_admin" },
  { who: "bob", what: "remove", whom: "ada", reason: "not_admin" },
  { who: "eve", what: "add", whom: "eve", reason: "not_found" },
  { who: "eve", what: "role", whom: "bob", role: "admin", reason: "not_found" },
  { who: "eve", what: "remove", whom: "ada", reason: "not_found" },
  { who: "eve", what: "remove", whom: "eve", reason: "not_found" },
  { who: "ada", what: "add", whom: "bob", reason: "is_member" },
  { who: "ada", what: "role", whom: "eve", reason: "not_member" },
  { who: "ada", what: "remove", whom: "eve", reason: "not_member" },
  { who: "ada", what: "remove", whom: "ada", reason: "last_admin" },
  {
    who: "ada",
    what: "role",
    whom: "ada",
    role: "member",
    reason: "last_admin",
  },
  { who: "op", what: "add", whom: "bob", reason: "is_member" },
];

Deno.test("API5: only an admin changes the members, and the last admin stays one", async (t) => {
  const { site, projects, id, ids, as, members } = await startProject();
  await using _ = site;
  const before = await members();
  assert.equal(before, "ada: admin, bob: member");
  for (const { who, what, whom, role = "member", reason } of REFUSALS) {
    await t.step(`${who} may not ${what} ${whom}`, async () => {
      const actor = who === "op" ? OPERATOR : as(who);
      const member = { memberId: ids[whom], role };
      const changes = {
        add: () => projects.addOwner(actor, id, member),
        role: () => projects.setRole(actor, id, member),
        remove: () => projects.remove(actor, id, ids[whom]),
      };
      await assert.rejects(changes[what](), refused(reason));
      assert.equal(await members(), before);
    });
  }
  const eve = { email: "eve@example.org", role: "admin" } as const;
  await projects.add(as("ada"), id, eve);
  await projects.remove(as("ada"), id, ids.ada);
  await projects.remove(as("bob"), id, ids.bob);
  assert.equal(await members(), "eve: admin", "leaving is always possible");
  await projects.remove(OPERATOR, id, ids.eve);
  const ada = { memberId: ids.ada, role: "admin" } as const;
  await projects.addOwner(OPERATOR, id, ada);
  assert.equal(await members(), "ada: admin", "an operator names another");
});

Deno.test("of two admins who remove each other at once, one stays", async () => {
  const { site, projects, id, ids, as, members } = await startProject();
  await using _ = site;
  await projects.setRole(as("ada"), id, { memberId: ids.bob, role: "admin" });
  for (let round = 0; round < 20; round += 1) {
    const [first, second] = await Promise.allSettled([
      projects.remove(as("ada"), id, ids.bob),
      projects.remove(as("bob"), id, ids.ada),
    ]);
    const outcomes = [first?.status, second?.status].sort();
    assert.deepEqual(outcomes, ["fulfilled", "rejected"]);
    const left = await members();
    assert.match(left, /^(ada|bob): admin$/);
    const isAda = left.startsWith("ada");
    const lost = {
      memberId: isAda ? ids.bob : ids.ada,
      role: "admin",
    } as const;
    await projects.addOwner(as(isAda ? "ada" : "bob"), id, lost);
  }
});

Deno.test("a membership ends at once, also for who reads the index of projects", async () => {
  const { site, projects, id, ids, as } = await startProject();
  await using _ = site;
  const [membership] = await projects.membershipsOf(ids.bob);
  assert.deepEqual(membership, await projects.membership(id, ids.bob));
  assert.equal(membership?.role, "member");
  assert.equal(membership?.project.name, "Search");
  const key = await storedKey(site, id, { description: "Of Bob" });
  await projects.remove(as("ada"), id, ids.bob);
  assert.equal(await projects.membership(id, ids.bob), null);
  assert.deepEqual(await projects.membershipsOf(ids.bob), []);
  assert.equal((await site.deps.keys.find(id, key.id)).ownerId, id);
  for (const other of ["", "own_", id.replace("prj", "own"), `${id}x`, "{}"]) {
    assert.equal(await projects.membership(other, ids.ada), null, other);
  }
});

Deno.test("ASVS 16.3.1: changes are in the logs of the project, the person and the operator", async () => {
  const { site, projects, id, ids, as } = await startProject();
  await using _ = site;
  const operator = { ...OPERATOR, ownerId: ids.eve };
  await projects.rename(as("ada"), id, "Search 2");
  await projects.setRole(operator, id, { memberId: ids.bob, role: "admin" });
  await projects.setRole(operator, id, { memberId: ids.bob, role: "admin" });
  await projects.setLimits(operator, id, { ...UNLIMITED, concurrency: 4 });
  await projects.setState(operator, id, "disabled");
  assert.equal((await projects.read(id))?.isDisabled, true);
  await projects.remove(operator, id, ids.bob);
  const logged = async (whose: string) =>
    (await entries(site, whose)).map(({ action, detail }) =>
      `${action.replace("project.", "")} ${detail}`.trim()
    );
  assert.deepEqual(await logged(id), [
    "created Search",
    "member_added bob@example.org: member",
    'renamed "Search" → "Search 2"',
    "role_changed bob@example.org: admin",
    "limits_changed concurrency 0 → 4",
    "disabled",
    "member_removed bob@example.org",
  ]);
  assert.deepEqual(await logged(ids.bob), [
    "member_added Search: member",
    "role_changed Search 2: admin",
    "member_removed Search 2",
  ]);
  assert.deepEqual(await logged(ids.eve), [
    "role_changed Search 2: bob@example.org: admin",
    "limits_changed Search 2: concurrency 0 → 4",
    "disabled Search 2",
    "member_removed Search 2: bob@example.org",
  ]);
});

Deno.test("projects and their members are bounded, and a form makes one project", async () => {
  const { site, projects, id, ids, as } = await startProject();
  await using _ = site;
  const strangers = { email: "nobody@example.org", role: "member" } as const;
  const add = () => projects.add(as("ada"), id, strangers);
  await assert.rejects(add(), refused("no_such_owner"));
  await site.addOwner(strangers.email);
  const stranger = await site.deps.owners.find(strangers.email) ?? "";
  await site.deps.owners.change(stranger, { state: "disabled" });
  await assert.rejects(add(), refused("owner_disabled"));
  const input = { name: "Twice", adminId: ids.ada, once: "d" };
  await projects.create(as("ada"), input);
  const again = projects.create(as("ada"), input);
  await assert.rejects(again, refused("already_made"));
  for (let n = 2; n < PROJECT_LIMITS.projectsPerOwnerMax; n += 1) {
    await projects.create(as("ada"), { name: `P${n}`, adminId: ids.ada });
  }
  const more = projects.create(as("ada"), { name: "P", adminId: ids.ada });
  await assert.rejects(more, refused("too_many_projects"));
  const fields = Array.from(
    { length: PROJECT_LIMITS.membersMax },
    (_, n) => [`own_${n}`, "member"],
  );
  const fill = ["HSET", `members:{${id}}`, ...fields.flat()];
  await site.deps.redis.command(fill);
  const eve = { memberId: ids.eve, role: "member" } as const;
  const tooMany = projects.addOwner(OPERATOR, id, eve);
  await assert.rejects(tooMany, refused("too_many"));
});

const BAD_NAMES = [
  "",
  "  ",
  "a\nb",
  "a\u0000b",
  "\u202Eevil",
  "\u2028",
  "x".repeat(101),
];

Deno.test("names of projects have something to read, and no control characters", () => {
  assert.equal(projectName.parse("  Suche 搜索 "), "Suche 搜索");
  for (const name of BAD_NAMES) {
    assert.equal(projectName.safeParse(name).success, false, name);
  }
});
