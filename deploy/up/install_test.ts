import assert from "node:assert/strict";
import type { Program } from "./child.ts";
import {
  describeManualInstall,
  NATS_SOFTWARE,
  planInstall,
  REDIS_SOFTWARE,
} from "./install.ts";
import { makeScratch } from "./testing/launcher.ts";

const BOTH = [NATS_SOFTWARE, REDIS_SOFTWARE];

const CASES: {
  name: string;
  tools: string[];
  isRoot: boolean;
  sudoWorks?: boolean;
  /** Words of the command, with tools by their bare names; null: no plan. */
  command: string[] | null;
}[] = [
  {
    name: "root with apt-get",
    tools: ["apt-get", "sudo", "brew"],
    isRoot: true,
    command: ["apt-get", "install"],
  },
  {
    name: "user with a sudo that asks nothing",
    tools: ["apt-get", "sudo"],
    isRoot: false,
    sudoWorks: true,
    command: [
      "sudo",
      "-n",
      "env",
      "DEBIAN_FRONTEND=noninteractive",
      "apt-get",
      "install",
    ],
  },
  {
    name: "user whose sudo wants a password",
    tools: ["apt-get", "sudo"],
    isRoot: false,
    sudoWorks: false,
    command: null,
  },
  {
    name: "user without sudo but with brew",
    tools: ["apt-get", "brew"],
    isRoot: false,
    command: ["brew", "install"],
  },
  { name: "root with brew only", tools: ["brew"], isRoot: true, command: null },
  { name: "no tool at all", tools: [], isRoot: true, command: null },
];

Deno.test("planInstall() uses what may install without a question", async (t) => {
  for (const { name, tools, isRoot, sudoWorks, command } of CASES) {
    await t.step(name, async () => {
      await using scratch = await makeScratch();
      for (const tool of tools) {
        await Deno.writeTextFile(`${scratch.path}/${tool}`, "", {
          mode: 0o755,
        });
      }
      const asked: Program[] = [];
      const plan = await planInstall(BOTH, {
        dirs: [scratch.path],
        isRoot,
        env: {},
      }, (program) => {
        asked.push(program);
        return Promise.resolve(sudoWorks === true);
      });
      if (command === null) return assert.equal(plan, undefined);
      assert.ok(plan);
      const words = [plan.install.file, ...plan.install.args]
        .map((word) => word.replace(`${scratch.path}/`, ""));
      assert.deepEqual(words.slice(0, command.length), command);
      const packages = plan.tool === "brew"
        ? ["nats-server", "redis"]
        : ["nats-server", "redis-server"];
      assert.deepEqual(words.slice(-2), packages);
      // Only sudo is asked whether it works, with something harmless.
      assert.ok(asked.every(({ args }) => args.join(" ") === "-n true"));
    });
  }
});

Deno.test("planInstall() takes only executable files for tools", async () => {
  await using scratch = await makeScratch();
  await Deno.writeTextFile(`${scratch.path}/apt-get`, "", { mode: 0o644 });
  await Deno.mkdir(`${scratch.path}/brew`);
  const host = { dirs: ["", scratch.path], isRoot: false, env: {} };
  assert.equal(
    await planInstall(BOTH, host, () => Promise.resolve(true)),
    undefined,
  );
});

Deno.test("describeManualInstall() names only what is missing", () => {
  const text = describeManualInstall([NATS_SOFTWARE]);
  assert.match(text, /Cannot find nats-server,/);
  assert.match(text, /sudo apt-get install nats-server /);
  assert.doesNotMatch(text, /install .*redis/);
});
