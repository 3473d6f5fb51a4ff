/**
 * Guarantee: at each sign-in, the groups of the provider decide the roles that the
 * rules name, and nothing else.
 */
import assert from "node:assert/strict";
import { startConsole } from "../../console_fixture.ts";
import { entries } from "../../routes_fixture.ts";
import type { Role } from "../projects/project_record.ts";
import { type Grant, groupsIn, parseGroupRules } from "../sign_in/groups.ts";
import { TestProvider } from "../sign_in/provider_fixture.ts";

const ADA = "ada@example.org";
const COMMAND = { by: "test", ip: "", ownerId: null, as: "operator" } as const;

/** A console with two projects, of which the rules name one. */
async function startGroups() {
  const rules = new Map<string, Grant[]>();
  const provider = new TestProvider({ groups: { claim: "groups", rules } });
  const site = await startConsole({
    oidc: provider.client,
    redisUser: "key-admin",
  });
  const { projects, owners } = site.deps;
  const create = async (name: string) =>
    (await projects.create(COMMAND, { name, adminId: null })).id;
  const [ruled, other] = [await create("Ruled"), await create("Other")];
  rules.set("crew", [{ projectId: ruled, role: "member" }]);
  rules.set("leads", [{ projectId: ruled, role: "admin" }]);
  rules.set("ops", ["operator"]);
  await owners.giveRole(await owners.ensure("op@example.org"));
  const ownerId = await owners.ensure(ADA);
  /** Signs Ada in with these claims. Returns her roles afterwards. */
  const signIn = async (claims: Record<string, unknown>) => {
    provider.claims = claims;
    const client = site.client();
    const { headers } = await client.get("/sign-in/oidc");
    const to = new URL(headers.get("location") ?? "");
    const { pathname, search } = provider.authorize(to);
    const answer = await client.get(pathname + search);
    assert.equal(answer.status, 303, answer.text);
    const role = (await projects.membership(ruled, ownerId))?.role ?? null;
    return [role, (await owners.read(ownerId))?.isOperator];
  };
  return { site, provider, ruled, other, ownerId, signIn };
}

interface SignIn {
  claims: Record<string, unknown>;
  role: Role | null;
  isOperator: boolean;
}

const LIFE: readonly SignIn[] = [
  { claims: {}, role: null, isOperator: false },
  { claims: { groups: ["crew"] }, role: "member", isOperator: false },
  { claims: { groups: "leads" }, role: "admin", isOperator: false },
  { claims: { groups: ["crew", "leads"] }, role: "admin", isOperator: false },
  { claims: { groups: ["crew", "ops"] }, role: "member", isOperator: true },
  // Unknown groups change nothing.
  { claims: { groups: [1] }, role: "member", isOperator: true },
  {
    claims: { _claim_names: { groups: "src1" } },
    role: "member",
    isOperator: true,
  },
  { claims: { groups: ["Crew", "other"] }, role: null, isOperator: false },
  { claims: { groups: ["leads"] }, role: "admin", isOperator: false },
  // Also the last admin loses the role with the group.
  { claims: {}, role: null, isOperator: false },
];

Deno.test("groups give and take roles at each sign-in, also the last admin's", async () => {
  const { site, provider, other, ownerId, signIn } = await startGroups();
  await using _provider = provider;
  await using _ = site;
  const { projects } = site.deps;
  const kept = { memberId: ownerId, role: "member" } as const;
  await projects.addOwner(COMMAND, other, kept);
  for (const { claims, role, isOperator } of LIFE) {
    const text = JSON.stringify(claims);
    assert.deepEqual(await signIn(claims), [role, isOperator], text);
  }
  assert.equal((await projects.membership(other, ownerId))?.role, "member");
  const logged = (await entries(site, ownerId))
    .filter(({ by }) => by === "groups at the provider")
    .map(({ action, detail }) => `${action} ${detail}`.trim());
  assert.deepEqual(logged, [
    "project.member_added Ruled: member",
    "project.role_changed Ruled: admin",
    "project.role_changed Ruled: member",
    "owner.role_given",
    "project.member_removed Ruled",
    "owner.role_removed",
    "project.member_added Ruled: admin",
    "project.member_removed Ruled",
  ]);
  const unknown = site.logLines
    .filter((line) => line.includes("oidc_groups_unknown"));
  assert.equal(unknown.length, 2);
});

Deno.test("the last operator stays one, and signs in all the same", async () => {
  const { site, provider, signIn } = await startGroups();
  await using _provider = provider;
  await using _ = site;
  const { owners } = site.deps;
  await signIn({ groups: ["ops"] });
  await owners.takeRole(await owners.find("op@example.org") ?? "");
  assert.deepEqual(await signIn({}), [null, true]);
  const refused = site.logLines
    .filter((line) => line.includes("oidc_group_refused"));
  assert.match(refused.join(), /There must always be an operator/);
});

const PROJECT = `prj_${"a".repeat(20)}`;
const BAD_RULES = [
  "",
  "x",
  "[]",
  "null",
  '{"a":1}',
  '{"a":"admin"}',
  `{"a":"${PROJECT}"}`,
  `{"a":"${PROJECT}:boss"}`,
  `{"a":"own_${"a".repeat(20)}:admin"}`,
  `{"a":["operator",["operator"]]}`,
];

Deno.test("rules of groups are JSON, and mistakes are found", () => {
  const text =
    `{"a, b":"operator","cn=x,ou=y":["${PROJECT}:admin","operator"]}`;
  assert.deepEqual(
    parseGroupRules(text),
    new Map<string, Grant[]>([
      ["a, b", ["operator"]],
      ["cn=x,ou=y", [{ projectId: PROJECT, role: "admin" }, "operator"]],
    ]),
  );
  for (const bad of BAD_RULES) assert.equal(parseGroupRules(bad), null, bad);
  assert.deepEqual(groupsIn({ groups: "a" }, "groups"), ["a"]);
  assert.deepEqual(groupsIn({}, "groups"), []);
  assert.equal(groupsIn({ groups: { a: 1 } }, "groups"), null);
});
