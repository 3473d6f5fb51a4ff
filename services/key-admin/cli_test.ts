/** The commands as a process: exit codes, stdout and stderr, input of scripts. */
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import pLimit from "p-limit";
import { makeScratch } from "../../tests/up/stand_ins/launcher.ts";
import { freePort, startRedis } from "./redis_fixture.ts";

const CLI = fileURLToPath(new URL("cli.ts", import.meta.url));

/** The command line as `docker compose exec -T` runs it: no input, no terminal. */
async function run(env: Record<string, string>, args: string[], cwd?: string) {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--no-check",
      "--allow-net",
      "--allow-env",
      "--allow-read",
      "--allow-sys",
      CLI,
      ...args,
    ],
    env: { NATS_URL: `nats://127.0.0.1:${freePort()}`, NO_COLOR: "1", ...env },
    ...cwd && { cwd },
    stdin: "null",
  }).output();
  const [out = "", err = ""] = [stdout, stderr]
    .map((bytes) => new TextDecoder().decode(bytes));
  return { code, out, err };
}

Deno.test("keys: distinguishes a stopped cluster from none at all", async () => {
  await using scratch = await makeScratch();
  const list = () => run({}, ["keys", "list"], scratch.path);
  const never = await list();
  assert.equal(never.code, 1);
  assert.match(never.err, /start one with "npx -y deno task up"/);
  const state = {
    redis_url: `redis://127.0.0.1:${freePort()}`,
    nats_url: "nats://127.0.0.1:4222",
    console_url: "http://127.0.0.1",
  };
  await Deno.mkdir(`${scratch.path}/.run`);
  const file = `${scratch.path}/.run/up.json`;
  await Deno.writeTextFile(file, JSON.stringify(state));
  const gone = await list();
  assert.equal(gone.code, 69);
  assert.match(gone.err, /Is "deno task up" still running in this folder/);
});

Deno.test("commands work in scripts: one JSON object on stdout, all else on stderr, and exit codes", async () => {
  await using server = await startRedis(["--appendonly", "no"]);
  const redis = await server.connect();
  const user = ["guest", "on", ">s3cret", "~*", "+@connection", "+config|get"];
  await redis.command(["ACL", "SETUSER", ...user]);
  const { url } = server;
  const guest = url.replace("redis://", "redis://guest:s3cret@");
  const stranger = guest.replace("s3cret", "guess");
  const gone = `redis://user:s3cret@127.0.0.1:${freePort()}`;
  const rows = [
    { line: "keys create --description Ci --json", url, code: 0, err: /^$/ },
    { line: "owners set-up --json", url, code: 0, err: /^$/ },
    { line: "keys show key_x --json", url, code: 1, err: /key does not exist/ },
    {
      line: "keys list --bogus --json",
      url,
      code: 2,
      err: /option '--bogus'\n\(--help/,
    },
    {
      line: "keys list --after x --json",
      url,
      code: 2,
      err: /cursor is invalid/,
    },
    { line: "bogus", url, code: 2, err: /unknown command 'bogus'/ },
    {
      line: "keys list",
      url: gone,
      code: 69,
      err: /^Cannot reach.*refused.*\n.*REDIS_/i,
    },
    { line: "keys list", url: stranger, code: 69, err: /WRONGPASS/ },
    {
      line: "keys list",
      url: guest,
      code: 77,
      err: /lacks a permission: NOPERM/,
    },
    { line: "keys list --json", url: "http://x", code: 78, err: /REDIS_URL/ },
  ];
  // Some wait for a Redis that is gone, and others can run meanwhile.
  const place = pLimit(2);
  const started = rows.map(({ line, url, code, err }) => {
    const ran = place(() => run({ REDIS_URL: url }, line.split(" ")));
    return { line, code, err, ran };
  });
  for (const { line, code, err, ran } of started) {
    const outcome = await ran;
    assert.equal(outcome.code, code, `${line}: ${outcome.err}`);
    assert.match(outcome.err, err, line);
    assert.ok(!outcome.err.includes("\u001b"), "no colours");
    assert.ok(!outcome.err.includes("s3cret"), "no password");
    // One line, one object.
    assert.match(outcome.out, code > 0 ? /^$/ : /^\{".*\}\n$/, line);
  }
});
