// Promise: `deno task X --help` prints help and never runs the task.
import assert from "node:assert/strict";
import * as z from "zod";
import { readSource } from "./support/source_files.ts";

const { tasks } = z.object({ tasks: z.record(z.string(), z.unknown()) })
  .parse(JSON.parse(readSource("deno.json")));

for (const task of Object.keys(tasks)) {
  Deno.test(`deno task ${task} --help prints help only`, async () => {
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["task", "--quiet", task, "--help"],
      cwd: new URL("..", import.meta.url),
    }).output();
    const [out, err] = [stdout, stderr].map((bytes) =>
      new TextDecoder().decode(bytes)
    );
    assert.equal(code, 0, err);
    assert.match(out ?? "", /^Usage: /m);
    assert.doesNotMatch(`${out}${err}`, /^(Checked|running) /m);
  });
}
