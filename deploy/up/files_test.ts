// Promise: what the launcher writes is private and bounded.
import assert from "node:assert/strict";
import { makeScratch } from "../../tests/up/stand_ins/launcher.ts";
import { appendToLog } from "./files.ts";

Deno.test("appendToLog() keeps within its bound and keeps one older file", async () => {
  const cases: { writes: string[]; log: string; previous: string | null }[] = [
    { writes: ["aaaa", "bbbb", "cc"], log: "aaaabbbbcc", previous: null },
    { writes: ["aaaa", "bbbb", "ccc"], log: "ccc", previous: "aaaabbbb" },
    { writes: ["0123456789ab"], log: "0123456789ab", previous: null },
    {
      writes: ["aaaaaaaa", "bbbbbbbb", "cccc"],
      log: "cccc",
      previous: "bbbbbbbb",
    },
  ];
  for (const { writes, log, previous } of cases) {
    await using scratch = await makeScratch();
    const path = `${scratch.path}/x.log`;
    for (const text of writes) appendToLog(path, text, 10);
    assert.equal(((await Deno.stat(path)).mode ?? 0) & 0o777, 0o600);
    assert.equal(await Deno.readTextFile(path), log);
    const older = await Deno.readTextFile(`${path}.1`).catch(() => null);
    assert.equal(older, previous);
  }
});
