import assert from "node:assert/strict";
import { LogFile } from "./files.ts";
import { makeScratch } from "../../tests/up/stand_ins/launcher.ts";

/** Opens a log of at most 10 bytes anew for each list of writes. */
async function logAfter(...runs: string[][]) {
  await using scratch = await makeScratch();
  const path = `${scratch.path}/x.log`;
  for (const writes of runs) {
    const log = new LogFile(path, assert.fail, 10);
    for (const text of writes) log.write(new TextEncoder().encode(text));
  }
  assert.equal(((await Deno.stat(path)).mode ?? 0) & 0o777, 0o600);
  const before = await Deno.readTextFile(`${path}.1`).catch(() => null);
  return [await Deno.readTextFile(path), before];
}

Deno.test("LogFile keeps within its bound and keeps one older file", async () => {
  const cases: [runs: string[][], now: string, before: string | null][] = [
    [[["aaaa", "bbbb", "cc"]], "aaaabbbbcc", null],
    [[["aaaa", "bbbb", "ccc"]], "ccc", "aaaabbbb"],
    [[["0123456789ab"]], "0123456789ab", null],
    [[["aaaaaaaa", "bbbbbbbb", "cccc"]], "cccc", "bbbbbbbb"],
    // An earlier run left a log.
    [[["one "], ["two"]], "one two", null],
    [[["one two "], ["three"]], "three", "one two "],
  ];
  for (const [runs, now, before] of cases) {
    assert.deepEqual(await logAfter(...runs), [now, before]);
  }
});

Deno.test("LogFile reports that it cannot write, and does not throw", () => {
  const failures: string[] = [];
  const log = new LogFile("/nowhere/x.log", (text) => failures.push(text));
  log.write(new Uint8Array(1));
  assert.match(failures[0] ?? "", /Cannot write \/nowhere\/x\.log/);
});
