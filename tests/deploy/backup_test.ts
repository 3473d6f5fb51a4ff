// Promise: `deploy/restore.sh` replaces the data of Redis; if it fails, it leaves it as
// it was. `deploy/backup.sh` copies the data, and leaves nothing beside it.
import assert from "node:assert/strict";
import { startRedisWorld } from "../support/limits/admission_fixture.ts";
import { makeTempDir } from "../support/process.ts";

/** A command in front of the real one, which fails for some arguments. */
const failsFor = (pattern: string, command: string) =>
  `#!/bin/sh
case "$*" in ${pattern}) exit 1 ;; esac
PATH=\${PATH#*:} exec ${command} "$@"
`;

/**
 * The part of a script that runs in the container of Redis, with folders of a test
 * instead of its own.
 */
async function startContainer(script: string, part: RegExp) {
  await using starting = new AsyncDisposableStack();
  const { path } = starting.use(await makeTempDir());
  const [data, bin] = [`${path}/data`, `${path}/bin`];
  for (const each of [data, bin]) await Deno.mkdir(each);
  const text = await Deno.readTextFile(`deploy/${script}`);
  const [, inner = assert.fail(script)] = part.exec(text) ?? [];
  const here = inner.replaceAll("/tmp/", `${path}/`).replaceAll("/data", data);
  const env = { PATH: `${bin}:${Deno.env.get("PATH")}` };
  const running = starting.move();
  return {
    data,
    run: (before: string, change = (text: string) => text) =>
      new Deno.Command("sh", {
        args: ["-c", `${before}\n${change(here)}`],
        env,
      }).output(),
    /** Puts a command in front of the real one. */
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
  await using redis = await startContainer("restore.sh", /^load='([^']*)'/m);
  await Deno.mkdir(`${redis.data}/appendonlydir/old`, { recursive: true });
  const input = `exec <${world.redis.directory}/dump.rdb`;
  const { stdout } = await redis.run(input);
  assert.match(new TextDecoder().decode(stdout), /Restored 2 entries/);
  const both = ["appendonlydir", "appendonlydir.before"];
  assert.deepEqual(await redis.files(), both);
  assert.deepEqual(await redis.files("/appendonlydir.before"), ["old"]);
  // As if Redis could not write its files.
  await redis.fail("redis-cli", "*appendonly*");
  assert.equal((await redis.run(input)).code, 1);
  assert.deepEqual(await redis.files(), both);
  assert.deepEqual(await redis.files("/appendonlydir.before"), ["old"]);
});

Deno.test("a backup leaves nothing beside the data, whether it succeeds or fails", async () => {
  await using world = await startRedisWorld({
    config: ["repl-diskless-sync-delay 0"],
  });
  await using redis = await startContainer("backup.sh", /sh -c '([^']*)'/);
  const backup = () =>
    redis.run(
      "",
      (text) =>
        text.replace(/REDISCLI_AUTH=.*\s+export REDISCLI_AUTH/, "true")
          .replace("--user operator", `-p ${world.redis.port}`),
    );
  const { stdout } = await backup();
  assert.match(new TextDecoder().decode(stdout), /^REDIS/);
  assert.deepEqual(await redis.files(), []);
  await redis.fail("redis-check-rdb", "*");
  assert.equal((await backup()).code, 1);
  assert.deepEqual(await redis.files(), []);
});
