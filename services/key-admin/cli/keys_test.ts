import assert from "node:assert/strict";
import { isWellFormedKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import { NO_DEFAULT_LIMITS } from "../domain/keys/settings.ts";
import type { SendStop } from "../domain/keys/notice.ts";
import { KeyStore } from "../domain/keys/key_store.ts";
import { OwnerDirectory } from "../domain/owners/directory.ts";
import { startRedis, type TestRedis } from "../redis_fixture.ts";
import { parseCommandLine } from "./command_line.ts";
import { runKeysCommand } from "./keys.ts";
import type { KeyJson } from "./key_text.ts";

/** The commands without a process around them; `cli_test.ts` has the processes. */
async function startCommands(
  server: TestRedis,
  sendStop: SendStop = () => Promise.resolve(),
) {
  const redis = await server.connect();
  const parts = { redis, writer: redis, randomBytes, now: () => Date.now() };
  const deps = {
    ...parts,
    keys: new KeyStore(parts),
    owners: new OwnerDirectory({
      ...parts,
      defaultLimits: NO_DEFAULT_LIMITS,
    }),
    defaultLimits: NO_DEFAULT_LIMITS.key,
    sendStop,
  };
  return async (...args: string[]) => {
    const answer = await runKeysCommand(deps, parseCommandLine(args));
    const json: KeyJson & { key?: string } & Record<string, unknown> = JSON
      .parse(
        JSON.stringify(answer.json),
      );
    return { json, text: answer.text };
  };
}

Deno.test("keys edit changes what is given and keeps the rest", async (t) => {
  await using server = await startRedis();
  const run = await startCommands(server);
  const made = await run(
    ...["create", "--description", "Ci", "--scopes", "chat,models"],
    ...["--models", "a,b", "--rpm", "60", "--expires", "2099-01-31T12:00:00Z"],
  );
  let before: KeyJson & { key?: string } = made.json;
  assert.equal(before.expires_at, "2099-01-31T12:00:00.000Z");
  assert.deepEqual(before.scopes, ["chat", "models"]);
  const limits = before.limits;
  const rows: [args: string[], changed: Partial<KeyJson>][] = [
    [["--description", "Ci of Ada"], { description: "Ci of Ada" }],
    [["--scopes", "models, speech,chat"], {
      scopes: ["chat", "models", "speech"],
    }],
    [["--models", ""], { models: [] }],
    [["--models", "c"], { models: ["c"] }],
    [["--rpm", "0"], { limits: { ...limits, requests_per_minute: 0 } }],
    [["--tpm", "5000", "--concurrency", "2"], {
      limits: {
        ...limits,
        requests_per_minute: 0,
        tokens_per_minute: 5_000,
        concurrency: 2,
      },
    }],
    [["--expires", "never"], { expires_at: null }],
    [["--expires", "2098-12-31"], { expires_at: "2098-12-31T00:00:00.000Z" }],
    [["--expires", "2098-12-31T23:59:59+02:00"], {
      expires_at: "2098-12-31T21:59:59.000Z",
    }],
  ];
  for (const [args, changed] of rows) {
    await t.step(args.join(" "), async () => {
      const { json, text } = await run("edit", before.id, ...args);
      const { key: _value, ...rest } = before;
      assert.deepEqual(json, {
        ...rest,
        ...changed,
        version: before.version + 1,
      });
      assert.ok(text.includes(before.id));
      assert.deepEqual((await run("show", before.id)).json, json);
      before = json;
    });
  }
});

Deno.test("keys list tells what the console tells, in pages", async () => {
  await using server = await startRedis();
  const run = await startCommands(server);
  for (const description of ["One", "Two", "Three"]) {
    await run(
      "create",
      "--description",
      description,
      "--expires",
      "2099-01-01",
    );
  }
  const seen: unknown[] = [];
  let cursor: string[] = [];
  for (let pages = 0; pages < 3; pages++) {
    const { json, text } = await run("list", "--rows", "1", ...cursor);
    const [row] = Array.isArray(json.keys) ? json.keys : [];
    seen.push(row.description);
    assert.equal(json.total, 3);
    assert.equal(row.last_used_at, null);
    assert.equal(row.expires_at, "2099-01-01T00:00:00.000Z");
    assert.deepEqual([row.requests_today, row.tokens_today], [0, 0]);
    assert.match(text, /LAST USED/);
    cursor = ["--after", String(json.next)];
    assert.equal(json.next === null, pages === 2);
  }
  assert.deepEqual(seen, ["Three", "Two", "One"]);
});

Deno.test("ASVS 15.3.1: no command prints a key's hash, and its value only when it was made", async (t) => {
  await using server = await startRedis();
  const run = await startCommands(server);
  const { json: { id, key: value = "" } } = await run(
    ...["create", "--description", "Ci"],
  );
  assert.match(value, /^sk-/);
  const later = [["list"], ["show", id], ["edit", id, "--rpm", "5"]];
  const changes = [["disable", id], ["enable", id], ["delete", id]];
  for (const args of [...later, ...changes]) {
    await t.step(args.join(" "), async () => {
      const { json, text } = await run(...args);
      const all = JSON.stringify(json) + text;
      assert.ok(!all.includes(value.slice(5, -4)));
      assert.ok(!/"(hash|key)":/.test(all) && !/[A-Za-z0-9_-]{43}/.test(all));
    });
  }
});

Deno.test("keys: a key lives and dies on the command line", async () => {
  await using server = await startRedis();
  const run = await startCommands(server);
  const create = [
    ...["create", "--description", "Ci", "--rpm", "60", "--models", "a,b"],
    ...["--owner", "Ada@Example.org"],
  ];
  const made = await run(...create);
  assert.match(made.text, /The owner ada@example.org is new/);
  assert.ok(!(await run(...create)).text.includes("is new"));
  assert.ok(isWellFormedKey(made.json.key ?? ""));
  assert.deepEqual(
    [made.json.state, made.json.models, made.json.limits.requests_per_minute],
    ["enabled", ["a", "b"], 60],
  );
  const { id } = made.json;
  const owner = ["--owner", "ada@example.org"];
  assert.equal((await run("disable", id, ...owner)).json.state, "disabled");
  assert.equal((await run("enable", id, ...owner)).json.state, "enabled");
  const next = await run("rotate", id, ...owner);
  assert.ok(isWellFormedKey(next.json.key ?? ""));
  assert.equal(next.json.replaces, id);
  assert.equal(Object(await run("delete", id, ...owner)).json.state, "deleted");
  const { text } = await run("list", ...owner);
  assert.ok(text.includes(next.json.id) && !text.includes(id));
  await assert.rejects(run("show", next.json.id), /no such key/);
  const none = await run("list", "--search", "zzz");
  assert.match(none.text, /^No matching keys/);
});

Deno.test("keys --stop-running says when nobody could be told", async () => {
  await using server = await startRedis();
  const run = await startCommands(server, () => Promise.reject(new Error()));
  const { json: { id } } = await run("create", "--description", "Ci");
  await assert.rejects(run("disable", id, "--stop-running"), {
    name: "CommandRefused",
    message: /is disabled, but its running requests/,
  });
});

Deno.test("keys: mistakes are explained", async (t) => {
  await using server = await startRedis();
  const run = await startCommands(server);
  const cases: [args: string[], name: string, says: RegExp][] = [
    [[], "UsageError", /Which command/],
    [["frobnicate"], "UsageError", /no command "frobnicate"/],
    [["constructor"], "UsageError", /no command/],
    [["create"], "UsageError", /^--description: Say what/],
    [["create", "--description", "a\nb"], "UsageError", /Line breaks/],
    [["create", "--description", "a", "--rpm", "-1"], "UsageError", /--rpm/],
    [["create", "--description", "a", "--rpm", "1.5"], "UsageError", /whole/],
    [
      ["create", "--description", "a", "--scopes", "x,y"],
      "UsageError",
      /^--scopes: Scopes are [a-z, ]+$/,
    ],
    [
      ["create", "--description", "a", "--tokens-per-day", "9".repeat(15)],
      "UsageError",
      /^--tokens-per-day: At most 1,000,000,000,000$/,
    ],
    [
      ["create", "--description", "a", "--models", "a b"],
      "UsageError",
      /Model/,
    ],
    [
      ["create", "--description", "a", "--expires", "soon"],
      "UsageError",
      /time/,
    ],
    [
      ["create", "--description", "a", "--expires", "2020"],
      "UsageError",
      /past/,
    ],
    [["create", "--description", "a", "--owner", "me"], "UsageError", /e-mail/],
    [["create", "two", "words"], "UsageError", /Unexpected "two"/],
    [["list", "--owner", "no@example.org"], "CommandRefused", /no owner/],
    [["list", "--state", "odd"], "UsageError", /--state/],
    [["list", "--rows", "0"], "UsageError", /^--rows: .* from 1 to 200$/],
    [["list", "--rows", "201"], "UsageError", /^--rows: .* from 1 to 200$/],
    [["list", "--rows", "x"], "UsageError", /^--rows: .* from 1 to 200$/],
    [["list", "--after", "x"], "BadCursor", /cursor/],
    [["show"], "UsageError", /Which key/],
    [["show", "key_x"], "CommandRefused", /no such key/],
    [["edit", "key_x"], "UsageError", /what to change/],
    [["rotate", "key_x", "--old", "1y"], "UsageError", /--old/],
    [["rotate", "key_x", "--old", "toString"], "UsageError", /--old/],
    [
      ["enable", "key_x", "--stop-running"],
      "UsageError",
      /no option --stop-running/,
    ],
    [["--bogus"], "UsageError", /^Unknown option '--bogus'$/],
  ];
  for (const [args, name, message] of cases) {
    await t.step(`keys ${args.join(" ")}`, async () => {
      await assert.rejects(async () => await run(...args), { name, message });
    });
  }
});
