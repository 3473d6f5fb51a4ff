import assert from "node:assert/strict";
import { ensureServers } from "./install.ts";
import { makeScratch } from "../../tests/up/stand_ins/launcher.ts";

const APT = ["apt-get update", "apt-get install nats-server redis-server"];
/** What the scripts of the programs do, and the commands that were run, without options. */
const CASES: [
  ...[name: string, tools: { [name: string]: string }],
  ...[isRoot: boolean, calls: string[]],
][] = [
  ["root, after fetching the lists", { "apt-get": "apt" }, true, APT],
  [
    "user with a sudo that asks nothing",
    { ...{ "apt-get": "apt", sudo: "pass" } },
    false,
    APT,
  ],
  [
    "user whose sudo needs a password",
    { ...{ "apt-get": "install", sudo: "fail" } },
    false,
    [],
  ],
  ["no tool", {}, true, []],
];

/** What a program does: fails, runs what follows, or installs both servers. */
function scriptOf(tool: string, kind: string, bin: string): string {
  const install = `touch ${bin}/nats-server ${bin}/redis-server
    chmod +x ${bin}/nats-server ${bin}/redis-server`;
  const note = `echo ${tool} "$@" >> ${bin}/calls`;
  switch (kind) {
    case "pass":
      return `shift; exec "$@"`;
    case "install":
      return `${note}\n${install}`;
    // As on a fresh machine: no package is found before its list is downloaded.
    case "apt":
      return `${note}\n[ "$1" != update ] || exec touch ${bin}/lists
        [ -e ${bin}/lists ] || exit 100\n${install}`;
    default:
      return "exit 1";
  }
}

Deno.test("ensureServers() installs without asking questions", async (t) => {
  for (const [name, tools, isRoot, calls] of CASES) {
    await t.step(name, async () => {
      await using scratch = await makeScratch();
      const bin = scratch.path;
      for (const [tool, kind] of Object.entries(tools)) {
        const script = `#!/bin/sh\n${scriptOf(tool, kind, bin)}\n`;
        await Deno.writeTextFile(`${bin}/${tool}`, script, { mode: 0o755 });
      }
      const said: string[] = [];
      const ensured = ensureServers(["nats-server", "redis-server"], {
        dirs: ["", bin],
        isRoot,
        out: { say: (text) => said.push(text), warn: assert.fail },
        stopping: new AbortController().signal,
      });
      if (calls.length === 0) {
        return await assert.rejects(
          ensured,
          /install nats-server and redis-server[^]*sudo apt-get install nats-server redis[^]*brew install nats-server redis /,
        );
      }
      assert.deepEqual([...(await ensured).values()], [
        `${bin}/nats-server`,
        `${bin}/redis-server`,
      ]);
      const noted = (await Deno.readTextFile(`${bin}/calls`)).trim();
      assert.deepEqual(
        noted.replaceAll(/ -\S+( DPkg\S+)?/g, "").split("\n"),
        calls,
      );
      assert.deepEqual(said, ["Installing nats-server and redis-server"]);
    });
  }
});
