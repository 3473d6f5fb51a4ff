// Promise: `--help` and `--version` only print, and never run the task or service.
import { versionLine } from "@gateway/shared/version";
import assert from "node:assert/strict";
import * as z from "zod";
import { readSource } from "./support/source_files.ts";

const { tasks } = z.object({ tasks: z.record(z.string(), z.unknown()) })
  .parse(JSON.parse(readSource("deno.json")));

/** What a command prints that ends with code 0. */
async function printed(...args: string[]) {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args,
    cwd: new URL("..", import.meta.url),
  }).output();
  const [out = "", err = ""] = [stdout, stderr].map((bytes) =>
    new TextDecoder().decode(bytes)
  );
  assert.equal(code, 0, err);
  return { out, err };
}

for (const task of Object.keys(tasks)) {
  Deno.test(`deno task ${task} --help prints help only`, async () => {
    const { out, err } = await printed("task", "--quiet", task, "--help");
    assert.match(out, /^Usage: /m);
    assert.doesNotMatch(`${out}${err}`, /^(Checked|running) /m);
  });
}

for (
  const [what, name, ...args] of [
    ["deno task up", "gateway", "task", "--quiet", "up"],
    ["edge-auth", "edge-auth", "run", "-A", "services/edge-auth/main.ts"],
  ] as const
) {
  Deno.test(`${what} --version prints the version only, without a configuration`, async () => {
    const { out } = await printed(...args, "--version");
    assert.equal(out, `${versionLine(name)}\n`);
  });
}
