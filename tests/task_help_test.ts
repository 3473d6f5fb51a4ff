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
  ["deno task up", "gateway", "task", "--quiet", "up"],
  ["edge-auth", "edge-auth", "run", "-A", "services/edge-auth/main.ts"],
] as const;
for (const [what, name, ...args] of COMMANDS) {
  Deno.test(`${what} --version prints the version only, without a configuration`, async () => {
    const out = await printed(...args, "--version");
    assert.equal(out, `${versionLine(name)}\n`);
  });
}
