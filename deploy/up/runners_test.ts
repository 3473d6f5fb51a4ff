import assert from "node:assert/strict";
import { chooseRunners, findRunners } from "./runners.ts";

const CASES: {
  name: string;
  /** From the launcher's parent upwards. */
  commands: string[];
  watched: number;
}[] = [
  { name: "deno task", commands: ["deno task up", "-bash"], watched: 1 },
  {
    name: "npx",
    commands: [
      "deno task up --port 0",
      "sh -c 'deno' task up --port 0",
      "npm exec deno task up --port 0",
      "bash",
    ],
    watched: 3,
  },
  {
    name: "npx with the wrapper of the npm package",
    commands: [
      "/root/.npm/_npx/1a/node_modules/deno/deno task up",
      "node /root/.npm/_npx/1a/node_modules/.bin/deno task up",
      "sh -c deno task up",
      "npm exec deno task up",
      "/usr/bin/node --test run_everything.js",
    ],
    watched: 4,
  },
  {
    name: "a script that may end before the cluster",
    commands: ["deno task up", "bash -c deno task up & sleep 5; exit", "sshd"],
    watched: 1,
  },
  {
    name: "started by a test",
    commands: ["/usr/bin/deno test --allow-run deploy", "deno task test"],
    watched: 0,
  },
  { name: "started directly", commands: ["-zsh"], watched: 0 },
  { name: "nothing above", commands: [], watched: 0 },
];

Deno.test("chooseRunners() picks the row of processes that only run the launcher", async (t) => {
  for (const { name, commands, watched } of CASES) {
    await t.step(name, () => {
      const ancestors = commands.map((parentCommand, i) => ({
        pid: 100 - i,
        parent: 99 - i,
        parentCommand,
      }));
      const expected = ancestors.slice(0, watched)
        .map(({ pid, parent }) => ({ pid, parent }));
      assert.deepEqual(chooseRunners(ancestors), expected);
    });
  }
});

Deno.test("findRunners() answers with links of real processes", async () => {
  // Under `deno task test` there are some; under a bare `deno test` none.
  const links = await findRunners(Deno.pid);
  const rows = [{ pid: 0, parent: Deno.pid }, ...links];
  for (const [i, link] of links.entries()) {
    assert.equal(link.pid, rows[i]?.parent);
  }
  assert.equal(links[0]?.parent ?? Deno.ppid, Deno.ppid);
});
