// Promise: what the launcher writes is private and bounded.
import assert from "node:assert/strict";
import { makeScratch } from "../../tests/up/stand_ins/launcher.ts";
import { appendToLog } from "./files.ts";

Deno.test("appendToLog() keeps within its bound and keeps one older file", async () => {
  const cases: [writes: string[], now: string, before: string | null][] = [
    [["aaaa", "bbbb", "cc"], "aaaabbbbcc", null],
    [["aaaa", "bbbb", "ccc"], "ccc", "aaaabbbb"],
    [["0123456789ab"], "0123456789ab", null],
    [["aaaaaaaa", "bbbbbbbb", "cccc"], "cccc", "bbbbbbbb"],
  ];
  for (const [writes, now, before] of cases) {
    await using scratch = await makeScratch();
    const path = `${scratch.path}/x.log`;
    for (const text of writes) appendToLog(path, text, 10);
    assert.equal(((await Deno.stat(path)).mode ?? 0) & 0o777, 0o600);
    assert.equal(await Deno.readTextFile(path), now);
    const older = await Deno.readTextFile(`${path}.1`).catch(() => null);
    assert.equal(older, before);
  }
});
