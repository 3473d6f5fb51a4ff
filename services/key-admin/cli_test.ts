import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { randomBytes } from "@gateway/shared/process/ids";
import { isWellFormedKey } from "@gateway/shared/keys/key";
import { UNLIMITED } from "@gateway/shared/keys/record";
import { parseCommandLine } from "./cli/command_line.ts";
import { runKeysCommand } from "./cli/keys.ts";
import { KeyStore } from "./domain/keys/key_store.ts";
import { NO_DEFAULT_LIMITS } from "./domain/keys/default_limits.ts";
import { OwnerDirectory } from "./domain/owners/directory.ts";
import { freePort, startRedis } from "./redis_fixture.ts";

const CLI = fileURLToPath(new URL("cli.ts", import.meta.url));

interface Outcome {
  code: number;
  out: string;
  err: string;
  /** What `--json` printed; empty for other output. */
  json: Record<string, unknown>;
}

const keys = (redisUrl: string, ...args: string[]): Promise<Outcome> =>
  run({ REDIS_URL: redisUrl }, ["keys", ...args]);

/** The command line as `docker compose exec -T` runs it: no input, no terminal. */
async function run(
  env: Record<string, string>,
  args: string[],
  cwd?: string,
): Promise<Outcome> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "--no-check", "--allow-net", "--allow-env", "--allow-read"],
      ...["--allow-sys", CLI, ...args],
    ],
    env: { NATS_URL: `nats://127.0.0.1:${freePort()}`, NO_COLOR: "1", ...env },
    ...(cwd === undefined ? {} : { cwd }),
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).output();
  const out = new TextDecoder().decode(stdout);
  return {
    code,
    out,
    err: new TextDecoder().decode(stderr),
    json: out.startsWith("{") ? JSON.parse(out) : {},
  };
}

Deno.test("keys: a key lives and dies on the command line", async () => {
  await using redis = await startRedis();
  const made = await keys(
    redis.url,
    ...["create", "--description", "Ci", "--rpm", "60", "--models", "a,b"],
    ...["--owner", "Ada@Example.org", "--json"],
  );
  assert.equal(made.code, 0, made.err);
  assert.ok(isWellFormedKey(String(made.json.key)));
  assert.equal(made.json.state, "enabled");
  assert.deepEqual(made.json.models, ["a", "b"]);
  const id = String(made.json.id);
  const owner = ["--owner", "ada@example.org"];

  const off = await keys(redis.url, "disable", id, ...owner, "--json");
  assert.deepEqual([off.code, off.json.state], [0, "disabled"]);
  const on = await keys(redis.url, "enable", id, ...owner, "--json");
  assert.deepEqual([on.code, on.json.state], [0, "enabled"]);
  const next = await keys(redis.url, "rotate", id, ...owner, "--json");
  assert.ok(isWellFormedKey(String(next.json.key)));
  assert.equal(next.json.replaces, id);
  const gone = await keys(redis.url, "delete", id, ...owner, "--json");
  assert.deepEqual([gone.code, gone.json.state], [0, "deleted"]);
  const list = await keys(redis.url, "list", ...owner);
  assert.ok(list.out.includes(String(next.json.id)) && !list.out.includes(id));
  assert.ok(!list.out.includes(String(next.json.key)));
  const other = await keys(redis.url, "show", String(next.json.id));
  assert.equal(other.code, 1, "the first owner has no such key");
});

Deno.test("keys: mistakes are explained", async (t) => {
  await using server = await startRedis();
  const redis = await server.connect();
  const shared = {
    redis,
    writer: redis,
    randomBytes,
    now: () => Date.now(),
    defaultLimits: NO_DEFAULT_LIMITS,
  };
  const deps = {
    ...shared,
    defaultLimits: UNLIMITED,
    keys: new KeyStore(shared),
    owners: new OwnerDirectory(shared),
    sendStop: () => Promise.resolve(),
  };
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
      await assert.rejects(
        async () => await runKeysCommand(deps, parseCommandLine(args)),
        { name, message },
      );
    });
  }
});

Deno.test("keys: redis away is 69, and its password is not printed", async () => {
  const url = `redis://user:s3cret@127.0.0.1:${freePort()}`;
  const outcome = await keys(url, "list");
  assert.equal(outcome.code, 69);
  assert.match(outcome.err, /^Cannot reach redis: .*refused.*\n.*REDIS_/i);
  assert.ok(!outcome.err.includes("s3cret"));
});

Deno.test("keys: a cluster that is gone is told from one that never was", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const never = await run({}, ["keys", "list"], folder);
    assert.equal(never.code, 1);
    assert.match(never.err, /start one with "npx -y deno task up"/);
    await Deno.mkdir(`${folder}/.run`);
    const state = {
      redis_url: `redis://127.0.0.1:${freePort()}`,
      nats_url: "nats://127.0.0.1:4222",
      console_url: "http://127.0.0.1:8081",
    };
    await Deno.writeTextFile(`${folder}/.run/up.json`, JSON.stringify(state));
    const gone = await run({}, ["keys", "list"], folder);
    assert.equal(gone.code, 69);
    assert.match(gone.err, /is "deno task up" still running\?\n$/);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("keys: a user in redis without the rights is told so with 77", async () => {
  await using server = await startRedis();
  const redis = await server.connect();
  const user = ["guest", "on", ">secret", "~*", "+@connection", "+config|get"];
  await redis.command(["ACL", "SETUSER", ...user]);
  const url = server.url.replace("redis://", "redis://guest:secret@");
  const outcome = await keys(url, "list");
  assert.equal(outcome.code, 77, outcome.err);
  assert.match(outcome.err, /may not do that: NOPERM/);
  const stranger = await keys(url.replace("secret", "guess"), "list");
  assert.equal(stranger.code, 69);
  assert.match(stranger.err, /WRONGPASS/);
});

Deno.test("keys create tells that its owner is new, which a misspelt address is", async () => {
  await using redis = await startRedis();
  const create = () =>
    keys(
      redis.url,
      ...["create", "--description", "Ci", "--owner", "adda@example.org"],
    );
  assert.match((await create()).out, /The owner adda@example.org is new/);
  assert.ok(!(await create()).out.includes("is new"));
  const found = await keys(redis.url, "list", "--search", "zzz");
  assert.match(found.out, /^No matching keys/);
});

Deno.test("keys --stop-running says when nobody could be told", async () => {
  await using redis = await startRedis();
  const made = await keys(
    redis.url,
    ...["create", "--description", "Ci", "--json"],
  );
  const id = String(made.json.id);
  const outcome = await keys(redis.url, "disable", id, "--stop-running");
  assert.equal(outcome.code, 1);
  assert.match(outcome.err, /is disabled, but its running requests/);
  const misspelt = await keys(redis.url, "--bogus");
  assert.equal(misspelt.code, 2);
});

Deno.test("keys and owners are for scripts too: no terminal, one JSON object on stdout, all else on stderr", async (t) => {
  await using careless = await startRedis({ settings: ["--appendonly", "no"] });
  const rows: [
    args: string[],
    env: Record<string, string>,
    code: number,
    err: RegExp,
  ][] = [
    [["keys", "create", "--description", "Ci", "--json"], {}, 0, /^Warning: /],
    [["owners", "set-up", "--json"], {}, 0, /^Warning: /],
    [["keys", "show", "key_x", "--json"], {}, 1, /no such key/],
    [["keys", "list", "--bogus", "--json"], {}, 2, /bogus'\nMore: keys --help/],
    [["keys", "list", "--after", "x", "--json"], {}, 2, /--after takes/],
    [["bogus"], {}, 2, /keys or owners/],
    [["keys", "list", "--json"], { REDIS_URL: "http://x" }, 78, /REDIS_URL/],
  ];
  for (const [args, env, code, err] of rows) {
    await t.step(args.join(" "), async () => {
      const outcome = await run({ REDIS_URL: careless.url, ...env }, args);
      assert.equal(outcome.code, code, outcome.err);
      assert.match(outcome.err, err);
      assert.ok(!outcome.err.includes("\u001b"), "no colours");
      if (code > 0) return assert.equal(outcome.out, "");
      assert.match(outcome.out, /^\{.*\}\n$/, "one line, one object");
      assert.ok(Object.keys(outcome.json).length > 0);
    });
  }
});
