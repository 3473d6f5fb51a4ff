import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { freePort, startRedis } from "./redis_fixture.ts";

const CLI = fileURLToPath(new URL("cli.ts", import.meta.url));

interface Outcome {
  code: number;
  out: string;
  err: string;
  /** The output of `--json`; empty for other output. */
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

Deno.test("keys: exits with 69 without Redis and does not print its password", async () => {
  const url = `redis://user:s3cret@127.0.0.1:${freePort()}`;
  const outcome = await keys(url, "list");
  assert.equal(outcome.code, 69);
  assert.match(outcome.err, /^Cannot reach redis: .*refused.*\n.*REDIS_/i);
  assert.ok(!outcome.err.includes("s3cret"));
});

Deno.test("keys: distinguishes a stopped cluster from none at all", async () => {
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
    assert.match(gone.err, /Is "deno task up" still running in this folder/);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("keys: exits with 77 if the Redis user lacks permissions", async () => {
  await using server = await startRedis();
  const redis = await server.connect();
  const user = ["guest", "on", ">secret", "~*", "+@connection", "+config|get"];
  await redis.command(["ACL", "SETUSER", ...user]);
  const url = server.url.replace("redis://", "redis://guest:secret@");
  const outcome = await keys(url, "list");
  assert.equal(outcome.code, 77, outcome.err);
  assert.match(outcome.err, /lacks a permission: NOPERM/);
  const stranger = await keys(url.replace("secret", "guess"), "list");
  assert.equal(stranger.code, 69);
  assert.match(stranger.err, /WRONGPASS/);
});

Deno.test("keys and owners work in scripts: no terminal, one JSON object on stdout, everything else on stderr", async (t) => {
  await using careless = await startRedis({ settings: ["--appendonly", "no"] });
  const rows: [
    args: string[],
    env: Record<string, string>,
    code: number,
    err: RegExp,
  ][] = [
    [["keys", "create", "--description", "Ci", "--json"], {}, 0, /^Warning: /],
    [["owners", "set-up", "--json"], {}, 0, /^Warning: /],
    [["keys", "show", "key_x", "--json"], {}, 1, /key does not exist/],
    [
      ["keys", "list", "--bogus", "--json"],
      {},
      2,
      /unknown option '--bogus'\n\(--help/,
    ],
    [["keys", "list", "--after", "x", "--json"], {}, 2, /cursor is invalid/],
    [["bogus"], {}, 2, /unknown command 'bogus'/],
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
