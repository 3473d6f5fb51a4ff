import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import { signIn, startConsole } from "../../console_fixture.ts";
import { startRedis } from "../../redis_fixture.ts";
import { accountKey } from "../store/names.ts";
import { asTexts } from "../store/redis.ts";
import { createSessionStore } from "./sessions.ts";
import { totpCode } from "./totp.ts";

/** Guarantee: no access by guessing, by timing, by default passwords or by replaying a code. */

const ADA = "ada@example.org";
const OWNER = "own_aaaaaaaaaaaaaaaaaaaa";

Deno.test("ASVS 6.3.2: there is no account before the set-up, and none with a default password", async (t) => {
  await using site = await startConsole();
  await site.deps.owners.first();
  const tried: [email: string, password: string][] = [
    ["admin", "admin"],
    ["admin@example.org", "admin"],
    ["root@localhost", "root"],
    ["", ""],
    ["owner@example.org", "changeme"],
    ["gateway@example.org", "gateway"],
    [ADA, ""],
  ];
  for (const [n, [email, password]] of tried.entries()) {
    await t.step(`${email} ${password}`, async () => {
      const client = site.client(`198.51.100.${n}`);
      assert.equal((await signIn(client, email, { password })).status, 401);
      assert.equal((await client.get("/keys")).status, 302);
    });
  }
  const { redis } = site.deps;
  for (const name of asTexts(await redis.command(["KEYS", "acct:*"]))) {
    assert.equal(await redis.command(["HEXISTS", name, "password"]), 0);
  }
});

Deno.test("ASVS 6.5.1: the same code sent many times at once works once", async () => {
  await using site = await startConsole();
  const ownerId = await site.addOwner(ADA);
  const secret = "GEZDGNBVGY3TQOJQ";
  const [recovery = ""] = await site.deps.accounts.enableTotp(
    ownerId,
    secret,
  );
  const step = Math.floor(site.clock.nowMs / 30_000);
  const rounds: [name: string, code: string, entered: number][] = [
    ["this step", totpCode(secret, step), 1],
    ["the same again", totpCode(secret, step), 0],
    ["the step before", totpCode(secret, step - 1), 1],
    ["the step before again", totpCode(secret, step - 1), 0],
    ["the next step", totpCode(secret, step + 1), 1],
    ["two steps on", totpCode(secret, step + 2), 0],
    ["a recovery code", recovery, 1],
    ["the recovery code again", recovery, 0],
  ];
  const browsers = await Promise.all([1, 2, 3].map(async (n) => {
    const device = site.client(`198.51.100.${n}`);
    await signIn(device, ADA);
    return device;
  }));
  for (const [name, code, entered] of rounds) {
    const names = asTexts(await site.deps.redis.command(["KEYS", "try:*"]));
    if (names.length > 0) await site.deps.redis.command(["DEL", ...names]);
    const answers = await Promise.all(
      browsers.map((browser) => signIn(browser, ADA, { code })),
    );
    const count = (wanted: number) =>
      answers.filter(({ status }) => status === wanted).length;
    assert.deepEqual([count(303), count(401)], [entered, 3 - entered], name);
  }
});

Deno.test("ASVS 6.5.2: recovery codes have 119 random bits, so a fast digest is enough", async () => {
  await using site = await startConsole();
  const ownerId = await site.addOwner(ADA);
  const codes = await site.deps.accounts.enableTotp(ownerId, "GEZDGNBV");
  assert.equal(new Set(codes).size, 10);
  assert.ok(20 * Math.log2(62) >= 112);
  const account = JSON.stringify(
    await site.deps.redis.command(["HGETALL", accountKey(ownerId)]),
  );
  for (const code of codes) {
    assert.match(code, /^([0-9A-Za-z]{5}-){3}[0-9A-Za-z]{5}$/);
    assert.ok(!account.includes(code.replaceAll("-", "")));
    assert.ok(!account.includes(code));
  }
});

Deno.test("ASVS 6.2.6, 6.2.7: password fields are masked, and managers may fill them in", async (t) => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const ownerId = await site.deps.owners.ensure("new@example.org");
  const link = await site.deps.links.make({
    kind: "invite",
    ownerId,
    email: "new@example.org",
  });
  const pages: [client: typeof owner, path: string][] = [
    [site.client(), "/sign-in"],
    [site.client(), `/link/${link}`],
    [owner, "/account"],
    [owner, "/account/second-factor"],
    [owner, "/confirm"],
  ];
  for (const [client, path] of pages) {
    await t.step(path, async () => {
      const { text } = await client.get(path);
      const fields = text.match(/<input[^>]*name="(?:new_)?password"[^>]*>/g) ??
        [];
      assert.ok(fields.length > 0, text);
      for (const field of fields) {
        assert.match(field, / type="password"/);
        assert.match(field, / autocomplete="(current|new)-password"/);
        // A bound in the page would silently truncate a pasted password.
        assert.ok(!/maxlength|onpaste|readonly/.test(field), field);
      }
    });
  }
  const file = site.deps.assets.files.get(site.deps.assets.script);
  assert.ok(file !== undefined && !/["']paste["']/.test(file.body));
});

Deno.test("ASVS 7.4.1: a session whose deletion was interrupted is over or can be ended again", async () => {
  await using server = await startRedis();
  const link = await server.connect();
  let breaksAt = "";
  const redis: RedisLink = {
    ...link,
    command: (args, options) =>
      args[0] === breaksAt
        ? Promise.reject(new RedisUnavailableError("deadline", "no answer"))
        : link.command(args, options),
  };
  const store = createSessionStore({ redis, randomBytes, now: Date.now });
  for (const command of ["DEL", "ZREM"]) {
    const cookie = await store.start(OWNER, { ip: "", userAgent: "" });
    const { id } = await store.find(cookie) ?? assert.fail("no session");
    breaksAt = command;
    await assert.rejects(store.end(OWNER, id), RedisUnavailableError);
    breaksAt = "";
    assert.equal(await store.end(OWNER, id), true, command);
    assert.equal(await store.find(cookie), null, command);
    assert.equal(await store.end(OWNER, id), false, command);
  }
});
