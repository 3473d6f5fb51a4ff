// Promise: `deploy/restore.sh` replaces the data of Redis; if it fails, it leaves it as it was.
import assert from "node:assert/strict";
import { startRedisWorld } from "../support/admission_fixture.ts";
import { makeTempDir } from "../support/process.ts";

/** In front of the real one; with it, Redis cannot write its files. */
const BROKEN_CLI = `#!/bin/sh
case "$*" in *appendonly*) exit 1 ;; esac
PATH=\${PATH#*:} exec redis-cli "$@"
`;

Deno.test("a restore replaces the data, and one that fails does not", async () => {
  await using world = await startRedisWorld();
  await using directory = await makeTempDir();
  const { path } = directory;
  await world.command("SET", "restored", "1");
  await world.command("SAVE");
  const data = `${path}/data`;
  await Deno.mkdir(`${data}/appendonlydir/old`, { recursive: true });
  const cli = `${path}/bin/redis-cli`;
  await Deno.mkdir(`${path}/bin`);
  await Deno.writeTextFile(cli, BROKEN_CLI, { mode: 0o755 });
  const script = await Deno.readTextFile("deploy/restore.sh");
  const [, load = ""] = /^load='([^']*)'/m.exec(script) ?? [];
  const here = load.replaceAll("/tmp/", `${path}/`).replaceAll("/data", data);
  const copy = `${world.redis.directory}/dump.rdb`;
  const args = ["-c", `exec <${copy}\n${here}`];
  const env = { PATH: `${path}/bin:${Deno.env.get("PATH")}` };
  const restore = () => new Deno.Command("sh", { args, env }).output();
  const files = async (folder = "") =>
    (await Array.fromAsync(Deno.readDir(data + folder), ({ name }) => name))
      .toSorted();

  assert.equal((await restore()).code, 1);
  assert.deepEqual(await files(), ["appendonlydir"]);
  assert.deepEqual(await files("/appendonlydir"), ["old"]);
  await Deno.remove(cli);
  const { stdout } = await restore();
  assert.match(new TextDecoder().decode(stdout), /Restored 2 entries/);
  assert.deepEqual(await files(), ["appendonlydir", "appendonlydir.before"]);
  assert.deepEqual(await files("/appendonlydir.before"), ["old"]);
});
