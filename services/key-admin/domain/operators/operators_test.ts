/** Guarantee: operators help and stop owners, not unseen, and one is always left. */
import assert from "node:assert/strict";
import { KEY_FIELDS, ownerLimitsKey } from "@gateway/shared/keys/record";
import { codeOf, startConsole, storedKey } from "../../console_fixture.ts";
import { isSignedIn, signIn } from "../../forms_fixture.ts";
import { entries } from "../../routes_fixture.ts";
import { linkPath } from "../sign_in/links.ts";
import {
  changesOf,
  type Operator,
  OWNER_CHANGES,
  type OwnerChange,
} from "./operators.ts";

const ADA = "ada@example.org";
const OP = "op@example.org";
const SECRET = "GEZDGNBVGY3TQOJQ";

/** A console with an operator and an owner. */
async function startPeople() {
  const site = await startConsole({ redisUser: "key-admin" });
  const { owners, operators } = site.deps;
  const ownerId = await site.addOwner(ADA);
  const operatorId = await site.addOwner(OP);
  await owners.giveRole(operatorId);
  await owners.enableTotp(ownerId, SECRET);
  const operator = { ownerId: operatorId, by: OP, ip: "192.0.2.9" };
  const read = async () => await owners.read(ownerId) ?? assert.fail();
  const change = (what: OwnerChange, whom = ownerId, who = operator) =>
    operators.change(who, whom, what);
  return { site, ownerId, operator, read, change };
}

Deno.test("ASVS 16.3.1: what an operator does is in the owner's log and, with the owner's name, in their own", async () => {
  const { site, ownerId, operator, read, change } = await startPeople();
  await using _ = site;
  const logged = async (whose: string) => {
    const { action, by, ip, detail } = (await entries(site, whose)).at(-1) ??
      assert.fail();
    return { action, by, ip, detail };
  };
  /** `count`: how many of the changes are possible afterwards. */
  const rows: { ownerChange: OwnerChange; action: string; count: number }[] = [
    {
      ownerChange: "reset_password",
      action: "account.reset_link_made",
      count: 5,
    },
    {
      ownerChange: "remove_second_factor",
      action: "account.second_factor_removed",
      count: 4,
    },
    { ownerChange: "sign_out_everywhere", action: "session.revoked", count: 4 },
    { ownerChange: "make_operator", action: "owner.role_given", count: 3 },
    {
      ownerChange: "remove_role_of_operator",
      action: "owner.role_removed",
      count: 4,
    },
    { ownerChange: "disable", action: "owner.disabled", count: 1 },
    { ownerChange: "enable", action: "owner.enabled", count: 4 },
  ];
  for (const { ownerChange, action, count } of rows) {
    await change(ownerChange);
    const entry = { action, by: OP, ip: operator.ip, detail: "" };
    const own = { ...entry, detail: ADA };
    assert.deepEqual(await logged(operator.ownerId), own);
    const possible = changesOf(await read());
    assert.equal(possible.length, count, `${ownerChange}: ${possible}`);
    for (const other of OWNER_CHANGES) {
      if (possible.includes(other)) continue;
      await assert.rejects(change(other), { name: "OperatorRefused" });
    }
    assert.deepEqual(await logged(ownerId), entry, "refused, so not logged");
  }
  const { operators, owners } = site.deps;
  const limits = { ...await owners.limits(ownerId), concurrency: 4 };
  await operators.setLimits(operator, ownerId, limits);
  assert.deepEqual(await owners.limits(ownerId), limits);
  const { detail } = await logged(operator.ownerId);
  assert.equal(detail, `${ADA}: concurrency 0 → 4`);
  for (const what of OWNER_CHANGES) {
    await assert.rejects(change(what, operator.ownerId), /your own account/);
  }
  await assert.rejects(operators.invite(operator, ADA), /sign in already/);
  await assert.rejects(change("disable", "own_x"), /no such owner/);
});

Deno.test("API5, ASVS 8.3.2: a disabled owner is signed out, cannot come back, and is refused by edges", async () => {
  const { site, ownerId, read, change } = await startPeople();
  await using _ = site;
  const { deps } = site;
  const cookieOf = () =>
    deps.sessions.start(ownerId, { ip: "", userAgent: "" });
  const client = site.client();
  client.cookies.set("__Host-sid", await cookieOf());
  assert.equal(await isSignedIn(client), true);
  const { secret } = await change("reset_password") ?? assert.fail();
  await change("disable");
  const name = ownerLimitsKey(ownerId);
  const state = await deps.redis.command(["HGET", name, KEY_FIELDS.state]);
  assert.equal(state, "disabled");
  assert.equal(await isSignedIn(client), false);
  assert.equal((await site.client().get(linkPath(secret))).status, 404);
  // Only somebody with the password and the code learns why.
  const codes = [["000000", /password or code is wrong/], [
    codeOf(site, SECRET),
    /account is disabled\. Ask your operator\./,
  ]] as const;
  for (const [code, says] of codes) {
    assert.match((await signIn(site.client(), ADA, { code })).text, says);
  }
  // Nor does a session that a sign-in at the same moment has left.
  client.cookies.set("__Host-sid", await cookieOf());
  assert.equal(await isSignedIn(client), false);
  await change("enable");
  assert.equal((await read()).isDisabled, false);
  const code = codeOf(site, SECRET, 1);
  assert.equal((await signIn(site.client(), ADA, { code })).status, 303);
});

Deno.test("the last operator keeps the role, also if two take it from each other at once", async () => {
  const { site, ownerId, operator, read, change } = await startPeople();
  await using _ = site;
  const commandLine = { by: "command line", ip: "", ownerId: null };
  const { operators, owners } = site.deps;
  const take = (who: Operator, whom: string) =>
    operators.change(who, whom, "remove_role_of_operator");
  const own = operator.ownerId;
  await assert.rejects(take(commandLine, own), /must always be an operator/);
  await change("make_operator");
  await assert.rejects(change("disable"), /ada@example.org is an operator$/);
  const taking = [take(operator, ownerId), take({ ...operator, ownerId }, own)];
  const results = await Promise.allSettled(taking);
  const successes = results.filter(({ status }) => status === "fulfilled");
  assert.equal(successes.length, 1);
  const accounts = [await read(), await owners.read(own)];
  assert.equal(accounts.filter((one) => one?.isOperator).length, 1);
});

Deno.test("API3: the pages of operators have no hash of a key or a password, and no secret of a second factor", async () => {
  const { site, ownerId } = await startPeople();
  await using _ = site;
  const { hash } = await storedKey(site, ownerId, { description: "Billing" });
  const client = await site.signedIn(OP);
  for (const page of ["", "?sort=-tokens&days=30", "/keys", `/${ownerId}`]) {
    const { text, status } = await client.get(`/people${page}`);
    assert.equal(status, 200);
    for (const secret of [hash, "quick ", SECRET]) {
      assert.ok(!text.includes(secret), `${page} ${secret}`);
    }
  }
});
