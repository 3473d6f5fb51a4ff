import assert from "node:assert/strict";
import { makeScratch, startLauncher } from "./testing/launcher.ts";

Deno.test("up installs missing servers with the package manager", async (t) => {
  const paths = await Promise.all(
    ["nats-server", "redis-server", "sh", "rm", "sleep", "cp", "tr"]
      .map(whereIs),
  );
  const [nats = "", redis = "", ...tools] = paths;
  await using scratch = await makeScratch();
  const bin = `${scratch.path}/bin`;
  await Deno.mkdir(bin);
  for (const tool of tools) {
    await Deno.symlink(tool, `${bin}/${tool.split("/").at(-1)}`);
  }
  const env = { PATH: bin, STAND_IN_USUAL_DIRS: "/nowhere" };

  await t.step("nothing can install: says what to type", async () => {
    await using up = startLauncher(scratch, { env });
    assert.equal(await up.exitCode, 1);
    assert.match(up.printed(), /Cannot find nats-server and redis-server/);
    assert.match(up.printed(), /sudo apt-get install nats-server redis-server/);
    assert.match(up.printed(), /brew install nats-server redis/);
  });

  // As on a fresh machine: the first try finds no lists, the second works.
  const script = `#!/bin/sh
echo "$@" >> ${scratch.path}/apt.txt
case "$*" in
  update*) : > ${scratch.path}/lists ;;
  install*)
    [ -e ${scratch.path}/lists ] || { echo "E: Unable to locate package" >&2; exit 100; }
    ln -s ${nats} ${bin}/nats-server
    ln -s ${redis} ${bin}/redis-server ;;
esac
`;
  await Deno.writeTextFile(`${bin}/apt-get`, script, { mode: 0o755 });
  await Deno.symlink(await whereIs("ln"), `${bin}/ln`);
  // Root needs no sudo; others get one that asks nothing.
  await Deno.writeTextFile(
    `${bin}/sudo`,
    `#!/bin/sh\nshift\nexec "$@"\n`,
    { mode: 0o755 },
  );
  await Deno.symlink(await whereIs("env"), `${bin}/env`);
  await Deno.symlink(await whereIs("true"), `${bin}/true`);

  await t.step("apt-get installs, after fetching its lists", async () => {
    await using up = startLauncher(scratch, { env });
    await up.state();
    assert.match(
      up.printed(),
      /Installing nats-server and redis-server with apt-get/,
    );
    const calls = (await Deno.readTextFile(`${scratch.path}/apt.txt`)).trim()
      .split("\n").map((line) => line.split(" ")[0]);
    assert.deepEqual(calls, ["install", "update", "install"]);
  });
});

async function whereIs(program: string): Promise<string> {
  const { stdout } = await new Deno.Command("sh", {
    args: [
      "-c",
      `PATH="$PATH:/usr/sbin:/usr/local/sbin"; command -v "$0"`,
      program,
    ],
  }).output();
  return new TextDecoder().decode(stdout).trim();
}
