import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { NO_DEFAULT_LIMITS } from "../domain/keys/default_limits.ts";
import { KeyStore } from "../domain/keys/key_store.ts";
import { OwnerDirectory } from "../domain/owners/directory.ts";
import { startRedis, type TestRedis } from "../redis_fixture.ts";
import { parseCommandLine } from "./command_line.ts";
import { runKeysCommand } from "./keys.ts";
import type { KeyJson } from "./key_text.ts";

/** The commands without a process around them; `cli_test.ts` has the processes. */
async function startCommands(server: TestRedis) {
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
    sendStop: () => Promise.resolve(),
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
