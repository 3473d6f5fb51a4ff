// Promise: `--help` and `--version` only print, and never run the task or service.
import { versionLine } from "@gateway/shared/version";
import assert from "node:assert/strict";
import { z } from "zod";
import { run } from "../services/key-admin/cli.ts";
import { startProcess } from "./support/process.ts";
import { readSource } from "./support/repository/source_files.ts";

const { tasks } = z.object({
  tasks: z.record(z.string(), z.object({ command: z.string() })),
}).parse(JSON.parse(readSource("deno.json")));

/** What a task runs: an entry file, or the tests of some folders. */
function programOf(task: string): string {
  const [, command = "", rest = ""] =
    /deno (run|test) (.*)/.exec(tasks[task]?.command ?? "") ?? [];
  const [file = ""] = command === "run" ? /\S+\.ts/.exec(rest) ?? [] : [];
  return `${command} ${file}`;
}

const CLI = "services/key-admin/cli.ts";

/** All that a command prints, which ends with code 0. */
async function printed(...args: string[]) {
  await using process = startProcess({ command: Deno.execPath(), args });
  const { success } = await process.exited;
  assert.ok(success, process.output());
  return process.output();
}

// Tasks that run the same program differ in its first argument, which is looked at
// after `--help`, except by the command line: it has a help for each area.
const programs = Map.groupBy(Object.keys(tasks), programOf);
for (const [program, [task = "", ...others]] of programs) {
  Deno.test(`deno task ${task} --help prints help only`, async () => {
    const out = await printed("task", "--quiet", task, "--help");
    assert.match(out, /^Usage: /m);
    assert.doesNotMatch(out, /^(Checked|running) /m);
    if (program !== `run ${CLI}`) return;
    for (const area of [task, ...others]) {
      const help = await run([area, "--help"], {});
      assert.match(help, new RegExp(`^Usage: gateway ${area}`, "m"));
    }
  });
}

const COMMANDS = [
  {
    command: "deno task up",
    program: "gateway",
    args: ["task", "--quiet", "up"],
  },
  {
    command: "edge-auth",
    program: "edge-auth",
    args: ["run", "-A", "services/edge-auth/main.ts"],
  },
];
for (const { command, program, args } of COMMANDS) {
  Deno.test(`${command} --version prints the version only, without a configuration`, async () => {
    const out = await printed(...args, "--version");
    assert.equal(out, `${versionLine(program)}\n`);
  });
}
