import assert from "node:assert/strict";
import { openLogFile } from "./files.ts";
import { makeScratch } from "../../tests/up/stand_ins/launcher.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

Deno.test("openLogFile() keeps the bound and one predecessor", async (t) => {
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
      const log = openLogFile(path, assert.fail, 10);
      // Not awaited one by one: the order must hold all the same.
      await Promise.all(writes.map((text) => log.write(bytes(text))));
      await log.close();
      assert.equal(await Deno.readTextFile(path), now);
      if (before === "") {
        await assert.rejects(Deno.stat(`${path}.1`), Deno.errors.NotFound);
      } else assert.equal(await Deno.readTextFile(`${path}.1`), before);
      assert.equal(((await Deno.stat(path)).mode ?? 0) & 0o777, 0o600);
    });
  }
});

Deno.test("openLogFile() appends to what an earlier run wrote", async () => {
  await using scratch = await makeScratch();
  const path = `${scratch.path}/x.log`;
  for (const text of ["one ", "two"]) {
    const log = openLogFile(path, assert.fail, 10);
    await log.write(bytes(text));
    await log.close();
  }
  assert.equal(await Deno.readTextFile(path), "one two");
});

Deno.test("openLogFile() reports once that it cannot write, and goes on", async () => {
  const failures: string[] = [];
  const log = openLogFile("/nowhere/x.log", (text) => failures.push(text));
  await log.write(bytes("a"));
  await log.write(bytes("b"));
  await log.close();
  assert.equal(failures.length, 1);
  assert.match(failures[0] ?? "", /Cannot write \/nowhere\/x\.log/);
});
