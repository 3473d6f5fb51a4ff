// Promise: missing servers are installed, or the operator is told how.
import assert from "node:assert/strict";
import { ensureServers } from "./stores.ts";
import { makeScratch } from "../../tests/up/stand_ins/launcher.ts";

const SERVERS = ["nats-server", "redis-server"];
/** As on a fresh machine: no package is found before its list is downloaded. */
const APT = `echo apt-get "$1" >> calls
  [ "$1" != update ] || exec touch lists
  [ -e lists ] || exit 100
  touch ${SERVERS.join(" ")}; chmod +x ${SERVERS.join(" ")}`;

Deno.test("ensureServers() installs without asking questions", async () => {
  /** Without `sudo`: as root. */
  const cases: [tools: { [name: string]: string }, isInstalled: boolean][] = [
    [{ "apt-get": APT }, true],
    [{ "apt-get": APT, sudo: 'shift; exec "$@"' }, true],
    // It asks for a password.
    [{ "apt-get": APT, sudo: "exit 1" }, false],
    [{}, false],
  ];
  for (const [tools, isInstalled] of cases) {
    await using scratch = await makeScratch();
    const bin = scratch.path;
    for (const [tool, script] of Object.entries(tools)) {
      const text = `#!/bin/sh\ncd ${bin}\n${script}\n`;
      await Deno.writeTextFile(`${bin}/${tool}`, text, { mode: 0o755 });
    }
    const ensured = ensureServers(SERVERS, {
      dirs: ["", bin],
      isRoot: tools.sudo === undefined,
      out: { say: () => {}, warn: assert.fail },
      stopping: new AbortController().signal,
    });
    if (isInstalled) {
      const paths = SERVERS.map((each) => `${bin}/${each}`);
      assert.deepEqual([...(await ensured).values()], paths);
      const calls = await Deno.readTextFile(`${bin}/calls`);
      assert.equal(calls, "apt-get update\napt-get install\n");
    } else {
      await assert.rejects(
        ensured,
        /install nats-server and redis-server[^]*sudo apt-get install nats-server redis[^]*brew install nats-server redis /,
      );
    }
  }
});
