// Promise: `--help` and `--version` only print, and never run the task or service.
import { versionLine } from "@gateway/shared/version";
import assert from "node:assert/strict";
import * as z from "zod";
import { startProcess } from "./support/process.ts";
import { readSource } from "./support/repository/source_files.ts";

const { tasks } = z.object({ tasks: z.record(z.string(), z.unknown()) })
  .parse(JSON.parse(readSource("deno.json")));

/** All that a command prints, which ends with code 0. */
async function printed(...args: string[]) {
  await using process = startProcess({ command: Deno.execPath(), args });
  const { success } = await process.exited;
  assert.ok(success, process.output());
  return process.output();
}

for (const task of Object.keys(tasks)) {
  Deno.test(`deno task ${task} --help prints help only`, async () => {
    const out = await printed("task", "--quiet", task, "--help");
    assert.match(out, /^Usage: /m);
    assert.doesNotMatch(out, /^(Checked|running) /m);
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
