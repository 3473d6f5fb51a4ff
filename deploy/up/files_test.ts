import assert from "node:assert/strict";
import { LogFile } from "./files.ts";
import { makeScratch } from "../../tests/up/stand_ins/launcher.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

Deno.test("LogFile keeps within its bound and keeps one older file", async (t) => {
  const cases: [name: string, writes: string[], now: string, before: string][] =
    [
      ["below the bound", ["aaaa", "bbbb"], "aaaabbbb", ""],
      ["at the bound", ["aaaa", "bbbb", "cc"], "aaaabbbbcc", ""],
      ["above the bound", ["aaaa", "bbbb", "ccc"], "ccc", "aaaabbbb"],
      ["one write above the bound", ["0123456789ab"], "0123456789ab", ""],
      ["several turns", ["aaaaaaaa", "bbbbbbbb", "cccc"], "cccc", "bbbbbbbb"],
    ];
  for (const [name, writes, now, before] of cases) {
    await t.step(name, async () => {
      await using scratch = await makeScratch();
      const path = `${scratch.path}/x.log`;
      const log = new LogFile(path, assert.fail, 10);
      for (const text of writes) log.write(bytes(text));
      log.close();
      assert.equal(await Deno.readTextFile(path), now);
      if (before === "") {
        await assert.rejects(Deno.stat(`${path}.1`), Deno.errors.NotFound);
      } else assert.equal(await Deno.readTextFile(`${path}.1`), before);
      assert.equal(((await Deno.stat(path)).mode ?? 0) & 0o777, 0o600);
    });
  }
});

Deno.test("LogFile appends to the log of an earlier run", async () => {
  await using scratch = await makeScratch();
  const path = `${scratch.path}/x.log`;
  for (const text of ["one ", "two"]) {
    const log = new LogFile(path, assert.fail);
    log.write(bytes(text));
    log.close();
  }
  assert.equal(await Deno.readTextFile(path), "one two");
});

Deno.test("LogFile reports once that it cannot write, and does not throw", () => {
  const failures: string[] = [];
  const log = new LogFile("/nowhere/x.log", (text) => failures.push(text));
  log.write(bytes("a"));
  log.write(bytes("b"));
  assert.equal(failures.length, 1);
  assert.match(failures[0] ?? "", /Cannot write \/nowhere\/x\.log/);
});
