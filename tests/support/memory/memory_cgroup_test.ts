// A process that exceeds the bound of its group is killed, and only then.
import assert from "node:assert/strict";
import { print, startProcess } from "../process.ts";
import { createMemoryCgroup, residentBytes } from "./memory_cgroup.ts";

const MIB = 1024 * 1024;

Deno.test("createMemoryCgroup() bounds what its members hold", async () => {
  await using group = await groupOrNull();
  if (group === null) return;
  for (
    const { mib, isKilled } of [
      { mib: 16, isKilled: false },
      { mib: 256, isKilled: true },
    ]
  ) {
    const hold = `head -c ${mib * MIB} /dev/zero | tail -c ${mib * MIB}`;
    const before = await group.killCount();
    await using process = startProcess(
      group.inside("/bin/sh", ["-c", `${hold} | wc -c`]),
    );
    await process.exited;
    assert.equal(await group.killCount() > before, isKilled, `${mib} MiB`);
  }
});

Deno.test("residentBytes() reads the memory of a process", async () => {
  const { now, highest } = await residentBytes(Deno.pid);
  assert.ok(now > 10 * MIB && highest >= now, `${now}, ${highest}`);
});

async function groupOrNull() {
  const group = await createMemoryCgroup({ bytesMax: 64 * MIB });
  if (typeof group !== "string") return group;
  print(`Left out: memory bounds: ${group}`);
  return null;
}
