/** The console while Redis does not answer. */
import assert from "node:assert/strict";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { RedisReply } from "@gateway/shared/redis/connection";
import { type Answer, type Form, hiddenField } from "../client_fixture.ts";
import { startConsole, storedKey } from "../console_fixture.ts";
import { keyForm, PASSWORD, signIn } from "../forms_fixture.ts";
import { changedLink } from "../../../tests/support/servers/redis_link.ts";
import { until } from "../redis_fixture.ts";
import { routeOwner } from "../routes_fixture.ts";

/**
 * Guarantee: when Redis fails, or cannot confirm that a change is on disk, nothing is
 * acknowledged and no access is granted.
 */

const VALUE = /sk-Cg[0-9A-Za-z]{46}/;

Deno.test("ASVS 16.5.1, 16.5.2, 16.5.3: without Redis the console answers 503 without details, and recovers", async () => {
  await using site = await startConsole();
  const { client, email } = await routeOwner(site, 1);
  await site.server.freeze();
  const answers = await Promise.all([
    client.get("/keys?filter=disabled&search=a"),
    client.post("/sign-out"),
    signIn(site.client(), email),
    site.client().get("/sign-in"),
  ]);
  for (const answer of answers) {
    assert.equal(answer.status, 503);
    assert.equal(answer.headers.get("retry-after"), "1");
    assert.deepEqual(answer.headers.getSetCookie(), []);
    assert.ok(!/redis|stack|deadline|Secret/i.test(answer.text), answer.text);
  }
  const [page, form] = answers;
  assert.match(form?.text ?? "", /may or may not have been made/);
  assert.ok(!page?.text.includes("may or may not"), "reading changes nothing");
  site.server.thaw();
  await until(async () => (await client.get("/keys")).status === 200);
});

/**
 * Replies of a Redis that confirms no flush, because somebody keeps switching it back.
 */
const NEVER_FLUSHED = new Map<string | undefined, RedisReply>([
  ["CONFIG", ["appendonly", "yes", "appendfsync", "everysec"]],
  ["SREM", 0],
]);

Deno.test("ASVS 2.3.3, 16.5.3: a change that is not confirmed to be on disk is not acknowledged", async () => {
  const disk = { fails: false };
  const writer = (link: RedisLink) =>
    changedLink(link, {
      command: async (args, options) => {
        const [name, action] = args;
        const reply = action === "SET" ? undefined : NEVER_FLUSHED.get(name);
        if (disk.fails && reply !== undefined) return reply;
        return await link.command(args, options);
      },
    });
  await using site = await startConsole({ writer });
  const { client, ownerId, keyId, email } = await routeOwner(site, 1);
  const { id: other } = await storedKey(site, ownerId);
  const nonce = hiddenField((await client.get("/keys/new")).text, "nonce");
  const unconfirmed = async (ask: () => Promise<Answer>) => {
    disk.fails = true;
    const answer = await ask();
    disk.fails = false;
    return answer;
  };
  await site.deps.owners.giveRole(ownerId);
  const new_password = "quite another phrase";
  const disabled = { model: "small-1", what: "disable" };
  const rotation = { version: "1", old: "1h", nonce: "r".repeat(43) };
  const changes: [path: string, form: Form][] = [
    ["/keys/new", keyForm("A key", { nonce })],
    [`/keys/${keyId}/rotate`, rotation],
    [`/keys/${other}/edit`, keyForm("Renamed", { version: "1" })],
    [`/keys/${other}/disable`, { version: "2" }],
    [`/keys/${other}/delete`, { version: "3", sure: "on" }],
    ["/models/change", disabled],
    ["/models/undo", disabled],
    ["/account/password", { password: PASSWORD, new_password }],
  ];
  for (const [path, form] of changes) {
    const answer = await unconfirmed(() => client.post(path, form));
    assert.equal(answer.status, 503, path);
    assert.match(answer.text, /not confirmed to be on disk/);
    assert.ok(!VALUE.test(answer.text), "an unconfirmed key is not shown");
    assert.equal(answer.headers.get("location"), null);
  }
  const signInWith = (code: string) =>
    unconfirmed(() => {
      const browser = site.client("192.0.2.77");
      return signIn(browser, email, { password: new_password, code });
    });
  // A recovery code would be good again.
  const { owners } = site.deps;
  const [code = ""] = await owners.enableTotp(ownerId, "GEZDGNBVGY3TQOJQ");
  const answer = await signInWith(code);
  assert.equal(answer.status, 503);
  assert.deepEqual(answer.headers.getSetCookie(), [], "no cookie is set");
  await owners.disableTotp(ownerId);
  assert.equal((await signInWith("")).status, 303, "a session needs no disk");
  const failed = site.logLines.filter((line) => line.includes("NotDurable"));
  assert.ok(failed.every((line) => line.includes(`"request_failed"`)));
  assert.equal(failed.length, changes.length + 1);
});
