/**
 * The commands without a process around them, with the permissions that
 * deploy/redis/users.acl gives the console's user; `cli_test.ts` has the processes.
 */
import assert from "node:assert/strict";
import { isWellFormedKey } from "@gateway/shared/keys/key";
import { leaseKey, type Limits, UNLIMITED } from "@gateway/shared/keys/record";
import { startConsole, type TestConsole } from "../console_fixture.ts";
import { PASSWORD, signIn } from "../forms_fixture.ts";
import {
  type CommandChanges,
  commandDeps,
  runCommand,
} from "./commands_fixture.ts";
import type { KeyJson } from "../domain/keys/key_json.ts";
import { countUse } from "../usage_fixture.ts";
import { KEYS } from "./keys.ts";
import { OWNERS } from "./owners.ts";

const ADA = "ada@example.org";
const AS_DEPLOYED = { redisUser: "key-admin" };

/** Runs a command and returns its output with and without `--json`. */
async function run(
  site: Pick<TestConsole, "deps"> & { changes?: CommandChanges },
  ...args: string[]
) {
  const areas = { keys: KEYS, owners: OWNERS };
  const deps = commandDeps(site, site.changes);
  const { json, text } = await runCommand(areas, args, deps);
  const printed: KeyJson & Record<string, unknown> = JSON.parse(
    JSON.stringify(json),
  );
  return { json: printed, text };
}

const create = (site: TestConsole, ...args: string[]) =>
  run(site, "keys", "create", "--description", "Ci", ...args);

Deno.test("keys edit changes the given settings and keeps the others", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const line = "--scopes chat,models --models small-1,large-1 --rpm 60 " +
    "--expires 2099-01-31T12:00:00Z";
  const { json: newKey } = await create(site, ...line.split(" "));
  assert.equal(newKey.expires_at, "2099-01-31T12:00:00.000Z");
  assert.deepEqual(newKey.scopes, ["chat", "models"]);
  let { json: before } = await run(site, "keys", "show", newKey.id);
  const limits = { ...before.limits, requests_per_minute: 0 };
  const more = { ...limits, tokens_per_minute: 5_000, concurrency: 2 };
  const rows: [args: string[], changed: Partial<KeyJson>][] = [
    [["--description", "Ci of Ada"], { description: "Ci of Ada" }],
    [["--scopes", "image, chat"], { scopes: ["chat", "image"] }],
    [["--models", "new-1", "--force"], { models: ["new-1"] }],
    [["--models", "new-1,small-1"], { models: ["new-1", "small-1"] }],
    [["--models", ""], { models: [] }],
    [["--rpm", "0"], { limits }],
    [["--tpm", "5000", "--concurrency", "2"], { limits: more }],
    [["--images-per-day", "1", "--video-jobs", "5"], {
      limits: { ...more, images_per_day: 1, video_jobs: 5 },
    }],
    [["--queue-weight", "150"], {
      limits: {
        ...more,
        images_per_day: 1,
        video_jobs: 5,
        queue_weight: 150,
      },
    }],
    [["--priority", "batch"], { priority: "batch" }],
    [["--keep-seconds", "600"], { keep_seconds: 600 }],
    [["--keep-seconds", "0"], { keep_seconds: 0 }],
    [["--allowed-cidrs", "10.0.0.0/8, 2001:DB8::1"], {
      allowed_cidrs: ["10.0.0.0/8", "2001:db8::1"],
    }],
    [["--allowed-cidrs", ""], { allowed_cidrs: [] }],
    [["--expires", "never"], { expires_at: null }],
    [["--expires", "2098-12-31T23:59:59+02:00"], {
      expires_at: "2098-12-31T21:59:59.000Z",
    }],
  ];
  for (const [args, changed] of rows) {
    const { json } = await run(site, "keys", "edit", newKey.id, ...args);
    const version = before.version + 1;
    assert.deepEqual(json, { ...before, ...changed, version });
    assert.deepEqual((await run(site, "keys", "show", newKey.id)).json, json);
    before = json;
  }
});

Deno.test("keys create names the model that it stores for an alias", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const lines: string[] = [];
  const find = (name: string) =>
    name.startsWith("gpt-") ? { id: "small-1" } : undefined;
  const changes = {
    modelNames: { ids: () => ["small-1", "large-1"], find },
    warn: (text: string) => void lines.push(text),
  };
  const args = ["keys", "create", "--description", "Ci", "--models"];
  const { json } = await run(
    { deps: site.deps, changes },
    ...args,
    "gpt-4o,large-1,gpt-5,small-1",
  );
  assert.deepEqual(json.models, ["small-1", "large-1"]);
  assert.deepEqual(lines, [
    "'gpt-4o' is an alias: the key may use the model 'small-1'",
    "'gpt-5' is an alias: the key may use the model 'small-1'",
  ]);
});

Deno.test("keys create accepts any model, with a warning, while the list of models is not known", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const warnings: string[] = [];
  const warn = (text: string) => void warnings.push(text);
  const modelNames = { ids: () => undefined, find: () => undefined };
  const args = ["keys", "create", "--description", "Ci", "--models", "any-1"];
  const unknown = { deps: site.deps, changes: { modelNames, warn } };
  assert.deepEqual((await run(unknown, ...args)).json.models, ["any-1"]);
  assert.match(warnings.join(), /not checked.*GET \/v1\/models/);
});

Deno.test("keys list shows what the console shows, in pages", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  for (const name of ["One", "Two", "Three"]) {
    const expires = ["--expires", "2099-01-01"];
    const { json } = await create(site, "--description", name, ...expires);
    if (name !== "Two") continue;
    const redis = await site.server.connect();
    await countUse({ deps: { redis } }, {
      ownerId: json.owner_id,
      keyId: json.id,
    }, {
      atMs: site.deps.now(),
      endpoint: "chat",
      counts: { requests: 7, cost: 1_500_000_001 },
    });
  }
  const { json, text } = await run(site, "keys", "list", "--rows=2");
  assert.match(text, /LAST USED AT.* Three\n.* Two\n\nMore: --after/s);
  assert.match(text, /REQUESTS TODAY +COST TODAY .* 7 +1\.500000001 +Two\n/s);
  const rest = ["keys", "list", "--after", String(json.next)];
  assert.match(
    JSON.stringify((await run(site, ...rest)).json),
    /^{"keys":\[{[^}]*"description":"One".*"expires_at":"2099-01-01T23:59:59.000Z".*"last_used_at":null,"requests_today":0,"tokens_today":0,"cost_today":"0"}\],"next":null}$/,
  );
});

Deno.test("ASVS 15.3.1: the command line makes, changes and deletes keys, and prints a value only once", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const owner = ["--owner", "Ada@Example.org"];
  const output = await create(site, ...owner);
  assert.match(output.text, /The owner ada@example.org is new/);
  const value = String(output.json.key);
  assert.ok(isWellFormedKey(value));
  const { json: { id } } = output;
  const other = await create(site, ...owner);
  assert.ok(!other.text.includes("is new"));
  const rows: [args: string[], shown: RegExp][] = [
    [["list"], /"enabled"/],
    [["show", id], /"enabled"/],
    [["edit", id, "--rpm", "5"], /"requests_per_minute":5/],
    [["disable", id, "--stop-running"], /"disabled"/],
    [["enable", id], /"enabled"/],
    [["rotate", id], /"replaces"/],
    [["delete", id], /"deleted"/],
  ];
  for (const [args, shown] of rows) {
    const { json, text } = await run(site, "keys", ...args, ...owner);
    const all = JSON.stringify(json) + text;
    assert.match(all, shown);
    assert.ok(!all.includes(value.slice(5, -4)));
    const others = all.replace(/sk-\w+/g, "");
    assert.doesNotMatch(others, /"hash":|[A-Za-z0-9_-]{43}/);
    assert.equal(isWellFormedKey(String(json.key)), args[0] === "rotate");
  }
  const { text } = await run(site, "keys", "list", ...owner);
  assert.ok(text.includes(other.json.id) && !text.includes(id));
  const [{ ownerId } = assert.fail()] = site.stops;
  const query = { action: "key.", keyId: id, before: "", rows: 9 };
  const { rows: written } = await site.deps.audit.read(ownerId, query);
  const actions = written.map(({ action, by }) => `${action} by ${by}`).join();
  assert.match(actions, /key.stop_requested by command line,key.disabled by/);
});

Deno.test("owners set-up, invite and reset print links, while they apply", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const follow = async (
    args: string[],
    { email = ADA, new_password = PASSWORD } = {},
  ) => {
    const { text } = await run(site, "owners", ...args);
    const [, path = text] = /https:\/\/console\.test(\S+)/.exec(text) ?? [];
    const client = site.client();
    const { status } = await client.post(path, { email, new_password });
    assert.equal(status, 303, text);
    return client;
  };
  await follow(["set-up"], { email: "first@example.org" });
  const again = run(site, "owners", "set-up");
  await assert.rejects(again, /is already set up: .* first@/);
  const old = await follow(["invite", "Ada@Example.org"]);
  assert.equal((await signIn(site.client(), ADA)).status, 303);
  await assert.rejects(run(site, "owners", "invite", ADA), /can sign in/);
  const chosen = { new_password: "quite another phrase" };
  const fresh = await follow(["reset", ADA], chosen);
  const log = await fresh.get("/audit?action=account.");
  assert.match(log.text, /Password reset link created.*command line/s);
  assert.equal((await old.get("/keys")).status, 302, "its session is over");
  assert.equal((await signIn(site.client("192.0.2.9"), ADA)).status, 401);
});

Deno.test("owners limits, sign-out, grant, revoke, disable, enable and remove-factor act as an operator does", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const client = await site.signedIn(ADA);
  const limits = (...args: string[]) =>
    run(site, "owners", "limits", ADA, ...args);
  assert.match((await limits()).text, /none$/);
  await limits("--rpm", "60", "--concurrency", "4", "--video-jobs", "1");
  const { json: { limits: set } } = await limits("--rpm", "0");
  const shown = [set.requests_per_minute, set.concurrency, set.video_jobs];
  assert.deepEqual(shown, [0, 4, 1]);
  const { json: weighed } = await limits("--queue-weight", "300");
  assert.equal(weighed.limits.queue_weight, 300);
  await run(site, "owners", "sign-out", ADA);
  assert.equal((await client.get("/keys")).status, 302);
  const ada = await site.deps.owners.ensure(ADA);
  await site.deps.owners.enableTotp(ada, "GEZDGNBVGY3TQOJQ");
  const after = async (command: string) => {
    await run(site, "owners", command, ADA);
    const { json } = await run(site, "owners", "list", "--search", "ada@");
    return JSON.stringify(json).match(/"(?:operator|disabled|two_step)":true/g);
  };
  const isOperator = ['"two_step":true', '"operator":true'];
  assert.deepEqual(await after("grant"), isOperator);
  await assert.rejects(run(site, "owners", "revoke", ADA), /must always/);
  await site.deps.owners.giveRole(await site.addOwner("op@example.org"));
  assert.deepEqual(await after("revoke"), ['"two_step":true']);
  assert.equal(await after("remove-factor"), null);
  assert.deepEqual(await after("disable"), ['"disabled":true']);
  assert.equal(await after("enable"), null);
  const { text } = await (await site.signedIn(ADA)).get("/keys");
  assert.match(text, /operator \(command line\) removed your second factor/);
});

Deno.test("every new key and owner gets the operator's default limits, unless a limit is given", async () => {
  const key: Limits = {
    ...UNLIMITED,
    requestsPerMinute: 600,
    tokensPerMinute: 100_000,
    concurrency: 10,
    imagesPerDay: 100,
  };
  const owner: Limits = { ...key, requestsPerMinute: 6_000 };
  const defaultLimits = { key, owner };
  await using site = await startConsole({ ...AS_DEPLOYED, defaultLimits });
  const { owners, keys } = site.deps;
  const limitsOf = async (...args: string[]) => {
    const { json: { id } } = await create(site, "--owner", ADA, ...args);
    return (await keys.find(await owners.ensure(ADA), id)).limits;
  };
  assert.deepEqual(await limitsOf(), key);
  const limits = await limitsOf("--rpm", "5", "--concurrency", "0");
  assert.deepEqual(limits, { ...key, requestsPerMinute: 5, concurrency: 0 });
  const ownerId = await owners.ensure(ADA);
  for (const id of [ownerId, await owners.first()]) {
    assert.deepEqual(await owners.limits(id), owner);
  }
  await owners.change(ownerId, { limits: key });
  await owners.ensure(ADA);
  assert.deepEqual(await owners.limits(ownerId), key);
  const { text } = await (await site.signedIn(ADA)).get("/keys/new");
  const [fieldset = ""] = /<legend>Limits<.*?<\/fieldset>/s.exec(text) ?? [];
  const fields = [...fieldset.matchAll(/<input[^>]*type="number"[^>]*>/g)];
  const shown = fields.map(([field]) => /value="([^"]*)"/.exec(field)?.[1]);
  assert.deepEqual(shown, [
    "600",
    "100000",
    "",
    "10",
    "100",
    "",
    "",
    "",
    "",
    "",
  ]);
});

Deno.test("budgets are decimals on the command line, in its answers and in the audit log", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const { owners, keys, audit } = site.deps;
  const { json: { id } } = await create(site, "--budget-day", "2.50");
  const ownerId = await owners.first();
  const { limits } = await keys.find(ownerId, id);
  assert.equal(limits.budgetDay, 2_500_000_000);
  const edited = await run(site, "keys", "edit", id, "--budget-total", "0.1");
  assert.match(edited.text, /budget_day 2\.5, budget_total 0\.1/);
  const query = { action: "", keyId: id, before: "", rows: 1 };
  const { rows } = await audit.read(ownerId, query);
  const [{ detail } = assert.fail()] = rows;
  assert.equal(detail, "budget total 0 → 0.1");
  for (const amount of ["1e3", "0.0000000001", "9007200", "1,5"]) {
    const args = ["keys", "edit", id, "--budget-day", amount];
    await assert.rejects(run(site, ...args), /--budget-day: Expected/);
  }
  await owners.ensure(ADA);
  const month = ["owners", "limits", ADA, "--budget-month"];
  const { text } = await run(site, ...month, "9007199.254740991");
  assert.match(text, /budget_month 9007199\.254740991/);
});

Deno.test("owners disable stops what runs if asked to", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const administrator = await site.server.connect();
  const { json: { id: keyId } } = await create(site, "--owner", ADA);
  const ownerId = await site.deps.owners.ensure(ADA);
  const principal = { keyId, ownerId };
  await administrator.command(["ZADD", leaseKey(principal), "1", "a request"]);
  await run(site, "owners", "disable", ADA, "--stop-running");
  assert.deepEqual(site.stops, [principal]);
  await run(site, "owners", "enable", ADA);
  site.deps.sendStop = () => Promise.reject(new Error());
  const failing = run(site, "owners", "disable", ADA, "--stop-running");
  await assert.rejects(failing, /It is done, but NATS or Redis/);
});

Deno.test("commands with the id of a key find its owner, unless one is named", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const { owners } = site.deps;
  const { json: { id } } = await create(site, "--owner", ADA);
  const ownerId = await owners.ensure(ADA);
  const { json } = await run(site, "keys", "show", id);
  assert.equal(json.owner_id, ownerId);
  await run(site, "keys", "disable", id);
  assert.equal((await site.deps.keys.find(ownerId, id)).state, "disabled");
  await owners.ensure("bob@example.org");
  const other = run(site, "keys", "show", id, "--owner", "bob@example.org");
  await assert.rejects(other, /does not exist/);
});

Deno.test("mistakes are explained", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  await site.addOwner(ADA);
  site.deps.sendStop = () => Promise.reject(new Error());
  const stop = ["disable", (await create(site)).json.id, "--stop-running"];
  const described = ["keys", "create", "--description", "a"];
  const expires = [...described, "--expires"];
  const usage: [args: string[], says: RegExp][] = [
    [["keys"], /Commands:/],
    [["keys", "create"], /^--description: Say what/],
    [["keys", "create", "--description", "a\nb"], /Line breaks/],
    [
      [...described, "--rpm", "-1", "--owner", "me"],
      /^--owner: Not an e-mail.*\n--rpm: Must be a whole number. At most 1,000,000; 0 means/,
    ],
    [[...described, "--scopes", "caht"], /^--scopes: .*did you mean 'chat'\?$/],
    [[...described, "--models", "a<b"], /^--models: Model/],
    [
      [...described, "--models", "smal-1"],
      /^--models: There is no model 'smal-1', did you mean 'small-1'\?\n.* add --force$/,
    ],
    [[...expires, "2027-02-30"], /^--expires: A day such as/],
    [[...expires, "2027-01-31T12:00:00"], /^--expires: A day such as/],
    [[...expires, "2020-01-01"], /past\. Give a later one, or never$/],
    [[...described, "--allowed-cidrs", "x"], /^--allowed-cidrs: x: Not an IP/],
    [["keys", "list", "--state", "odd"], /^--state: One of all, enabled/],
    [["keys", "list", "--rows", "201"], /^--rows: .* from 1 to 200$/],
    [["keys", "edit", "key_x"], /Nothing to change/],
    [["keys", "rotate", "key_x", "--old", "toString"], /^--old: One of now/],
    [["keys", "enable", "key_x", "--stop-running"], /unknown option/],
    [["owners", "invite", "x"], /Not an e-mail address, such as .*: x$/],
  ];
  const unknownOwner = ["keys", "list", "--owner", "no@example.org"];
  const noAccount = ["owners", "reset", "x@y.org"];
  const refusals = [
    ...usage.map(([args, message]) => ({ name: "UsageError", args, message })),
    {
      name: "KeyRefused",
      args: ["keys", "disable", "key_x"],
      message: /does not exist/,
    },
    { name: "CommandRefused", args: unknownOwner, message: /no owner/ },
    { name: "CommandRefused", args: noAccount, message: /no owner/ },
    {
      name: "AdminRefused",
      args: ["keys", ...stop],
      message: /is done, but NATS.* running requests end within 11 sec/,
    },
  ];
  for (const { name, args, message } of refusals) {
    const ran = (async () => await run(site, ...args))();
    await assert.rejects(ran, { name, message }, args.join(" "));
  }
});
