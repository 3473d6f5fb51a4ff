// Promise: whoever watches a run sees which files a line is about, also when they share
// an isolate.
import assert from "node:assert/strict";
import { moduleOfGroup, nameOfGroup, namingGroups } from "./group_names.ts";

const GROUPS = [
  ["shared/bus/job_test.ts", "shared/bus/link_test.ts", "tests/lua_test.ts"],
  ["tests/tidy_test.ts"],
];
const OUTPUT = `../../tmp/x/${moduleOfGroup(0)} => a job is read ... ok (1ms)
./shared/worker/worker_test.ts => a worker starts ... ok (2ms)
file:///tmp/x/${moduleOfGroup(1)} => rooms ... FAILED (1ms)
the end, without a line end of ${moduleOfGroup(9)}`;
const SHOWN =
  `shared/bus/{job,link}_test.ts tests/lua_test.ts => a job is read ... ok (1ms)
./shared/worker/worker_test.ts => a worker starts ... ok (2ms)
tests/tidy_test.ts => rooms ... FAILED (1ms)
the end, without a line end of ${moduleOfGroup(9)}`;

for (const chars of [OUTPUT.length, 7, 1]) {
  Deno.test(`namingGroups() names the files of groups in output that comes ${chars} characters at a time`, async () => {
    const pieces = OUTPUT.match(new RegExp(`[^]{1,${chars}}`, "g")) ?? [];
    const shown = ReadableStream.from(pieces).pipeThrough(namingGroups(GROUPS));
    assert.equal((await Array.fromAsync(shown)).join(""), SHOWN);
  });
}

Deno.test("nameOfGroup() names a single file by its path", () => {
  assert.equal(nameOfGroup(["tests/tidy_test.ts"]), "tests/tidy_test.ts");
});
