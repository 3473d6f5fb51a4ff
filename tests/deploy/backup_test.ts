// Promise: `deploy/restore.sh` replaces the data of Redis; if it fails, it leaves it as
// it was. `deploy/backup.sh` copies the data, and leaves nothing beside it.
import assert from "node:assert/strict";
import {
  RedisWorld,
  startRedisWorld,
} from "../support/limits/admission_fixture.ts";
import { makeTempDir } from "../support/process.ts";
import { startRedisServer } from "../support/servers/redis_server.ts";
import { assertMoneyIsBack, spendInProject } from "./backup_money_checks.ts";

/** A command in front of the real one, which fails for some arguments. */
const failsFor = (pattern: string, command: string) =>
  `#!/bin/sh
case "$*" in ${pattern}) exit 1 ;; esac
PATH=\${PATH#*:} exec ${command} "$@"
`;

/** The parts of `restore.sh`. */
const CHECK = /^check='([^']*)'/m;
const LOAD = /^load='([^']*)'/m;

/** The container of Redis, as the parts of a script find it that run in it. */
interface Container extends AsyncDisposable {
  /** The folder of the data. */
  readonly data: string;
  /** Runs a part of the script, perhaps changed, after a command of the test. */
  run(
    part: RegExp,
    options?: { before?: string; change?: (text: string) => string },
  ): Promise<Deno.CommandOutput>;
  /** Puts a command in front of the real one. */
  fail(command: string, pattern: string): Promise<void>;
  /** What is in a folder of the data, in order. */
  files(folder?: string): Promise<string[]>;
}

/**
 * The parts of a script that run in the container of Redis, with folders of a test
 * instead of its own.
 */
async function startContainer(script: string): Promise<Container> {
  await using starting = new AsyncDisposableStack();
  const { path } = starting.use(await makeTempDir());
  const [data, bin] = [`${path}/data`, `${path}/bin`];
  for (const each of [data, bin]) await Deno.mkdir(each);
  const text = await Deno.readTextFile(`deploy/${script}`);
  const here = (part: RegExp) => {
    const [, inner = assert.fail(script)] = part.exec(text) ?? [];
    return inner.replaceAll("/tmp/", `${path}/`).replaceAll("/data", data);
  };
  const env = { PATH: `${bin}:${Deno.env.get("PATH")}` };
  const running = starting.move();
  return {
    data,
    run: (
      part: RegExp,
      { before = "", change = (text: string) => text } = {},
    ) =>
      new Deno.Command("sh", {
        args: ["-c", `${before}\n${change(here(part))}`],
        env,
      }).output(),
    fail: (command: string, pattern: string) =>
      Deno.writeTextFile(`${bin}/${command}`, failsFor(pattern, command), {
        mode: 0o755,
      }),
    files: async (folder = "") =>
      (await Array.fromAsync(Deno.readDir(data + folder), ({ name }) => name))
        .toSorted(),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

Deno.test("a restore replaces the data, and one that fails does not", async () => {
  await using world = await startRedisWorld();
  await world.command("SET", "restored", "1");
  await world.command("SAVE");
  await using redis = await startContainer("restore.sh");
  await Deno.mkdir(`${redis.data}/appendonlydir/old`, { recursive: true });
  const copy = () =>
    redis.run(CHECK, {
      before: `exec <${world.redis.directory}/dump.rdb`,
    });
  assert.equal((await copy()).code, 0);
  assert.deepEqual(await redis.files(), ["appendonlydir", "restoring"]);
  const { stdout } = await redis.run(LOAD);
  assert.match(new TextDecoder().decode(stdout), /Restored 2 entries/);
  const both = ["appendonlydir", "appendonlydir.before"];
  assert.deepEqual(await redis.files(), both);
  assert.deepEqual(await redis.files("/appendonlydir.before"), ["old"]);
  // As if Redis could not write its files.
  await redis.fail("redis-cli", "*appendonly*");
  await copy();
  assert.equal((await redis.run(LOAD)).code, 1);
  assert.deepEqual(await redis.files(), both);
  assert.deepEqual(await redis.files("/appendonlydir.before"), ["old"]);
});

Deno.test("a copy that cannot be restored is found before Redis is stopped, and leaves nothing", async () => {
  const script = await Deno.readTextFile("deploy/restore.sh");
  const checksAt = script.indexOf('in_redis "$check"');
  assert.ok(checksAt > 0 && checksAt < script.indexOf("compose stop"));
  await using redis = await startContainer("restore.sh");
  for (const content of ["printf REDIS0011", "printf nonsense"]) {
    const { code, stderr } = await redis.run(CHECK, {
      before: `exec <<E\n$(${content})\nE`,
    });
    assert.equal(code, 1);
    assert.notEqual(stderr.length, 0);
    assert.deepEqual(await redis.files(), []);
  }
});

/** Copies a Redis as `backup.sh` does. */
const backUp = (
  { run }: Container,
  port: number,
) =>
  run(/sh -c '([^']*)'/, {
    change: (text) =>
      text.replace(/REDISCLI_AUTH=.*\s+export REDISCLI_AUTH/, "true")
        .replace("--user operator", `-p ${port}`),
  });

/** A Redis whose copies need not wait for more copies to be asked for. */
const startCopied = (...config: string[]) =>
  startRedisWorld({ config: ["repl-diskless-sync-delay 0", ...config] });

Deno.test("a copy brings projects, budgets, end users and the ledger back to the billionth", async () => {
  await using world = await startCopied("appendonly yes");
  const before = await spendInProject(world);
  await using source = await startContainer("backup.sh");
  const { stdout: copy } = await backUp(source, world.redis.port);
  await using target = await startContainer("restore.sh");
  const file = `${target.data}.rdb`;
  await Deno.writeFile(file, copy);
  assert.equal((await target.run(CHECK, { before: `exec <${file}` })).code, 0);
  assert.equal((await target.run(LOAD)).code, 0);
  const args = ["--dir", target.data, "--appendonly", "yes"];
  await using restored = new RedisWorld(await startRedisServer({ args }), {});
  await restored.open();
  await assertMoneyIsBack(restored, before);
});

Deno.test("a backup leaves nothing beside the data, whether it succeeds or fails", async () => {
  await using world = await startCopied();
  await using redis = await startContainer("backup.sh");
  const backup = () => backUp(redis, world.redis.port);
  const { stdout } = await backup();
  assert.match(new TextDecoder().decode(stdout), /^REDIS/);
  assert.deepEqual(await redis.files(), []);
  await redis.fail("redis-check-rdb", "*");
  assert.equal((await backup()).code, 1);
  assert.deepEqual(await redis.files(), []);
});
