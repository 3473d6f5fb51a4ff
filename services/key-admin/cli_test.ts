/** The commands in scripts: exit codes, stdout and stderr. */
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import pLimit from "p-limit";
import { makeScratch } from "../../tests/up/stand_ins/launcher.ts";
import { outcomeOf } from "./cli.ts";
import { freePort, startRedis } from "./redis_fixture.ts";

const CLI = fileURLToPath(new URL("cli.ts", import.meta.url));

/** The command line as a process, as `docker compose exec -T` runs it: no input, no terminal. */
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

Deno.test("commands work in scripts: one JSON object on stdout and nothing on stderr", async () => {
  await using server = await startRedis(["--appendonly", "no"]);
  const create = ["keys", "create", "--description", "Ci", "--json"];
  const { code, out, err } = await run({ REDIS_URL: server.url }, create);
  assert.equal(code, 0, err);
  assert.equal(err, "");
  assert.match(out, /^\{".*\}\n$/, "one line, one object");
});

Deno.test("commands that fail say why, without the password, and have exit codes of their own", async () => {
  await using server = await startRedis(["--appendonly", "no"]);
  const redis = await server.connect();
  const user = ["guest", "on", ">s3cret", "~*", "+@connection", "+config|get"];
  await redis.command(["ACL", "SETUSER", ...user]);
  const { url } = server;
  const guest = url.replace("redis://", "redis://guest:s3cret@");
  const stranger = guest.replace("s3cret", "guess");
  const gone = `redis://user:s3cret@127.0.0.1:${freePort()}`;
  const rows = [
    { line: "owners set-up --json", url, code: 0, text: /^\{".*\}$/ },
    {
      line: "keys show key_x --json",
      url,
      code: 1,
      text: /key does not exist/,
    },
    {
      line: "keys list --bogus --json",
      url,
      code: 2,
      text: /option '--bogus'\n\(--help/,
    },
    {
      line: "keys list --after x --json",
      url,
      code: 2,
      text: /cursor is invalid/,
    },
    { line: "bogus", url, code: 2, text: /unknown command 'bogus'/ },
    {
      line: "keys list",
      url: gone,
      code: 69,
      text: /^Cannot reach.*refused.*\n.*REDIS_/i,
    },
    { line: "keys list", url: stranger, code: 69, text: /WRONGPASS/ },
    {
      line: "keys list",
      url: guest,
      code: 77,
      text: /lacks a permission: NOPERM/,
    },
    { line: "keys list --json", url: "http://x", code: 78, text: /REDIS_URL/ },
  ];
  const NATS_URL = `nats://127.0.0.1:${freePort()}`;
  // Some wait for a Redis that is gone, and others can run meanwhile.
  const place = pLimit(2);
  await Promise.all(rows.map(async ({ line, url, code, text }) => {
    const variables = { NATS_URL, REDIS_URL: url };
    const outcome = await place(() => outcomeOf(line.split(" "), variables));
    assert.equal(outcome.code, code, `${line}: ${outcome.text}`);
    assert.match(outcome.text, text, line);
    assert.ok(!outcome.text.includes("\u001b"), "no colours");
    assert.ok(!outcome.text.includes("s3cret"), "no password");
  }));
});
