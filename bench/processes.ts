/** What processes cost, from `/proc`: CPU seconds and resident memory. Linux only. */

const TICKS_PER_SECOND = 100;
const KIB_PER_MIB = 1_024;

/** CPU seconds, user and system, that these processes have used so far. */
export function cpuSeconds(pids: readonly number[]): number {
  let ticks = 0;
  for (const pid of pids) {
    const stat = readOrEmpty(`/proc/${pid}/stat`);
    // The name may hold blanks; after its bracket, user and system time are the 12th and 13th.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    ticks += Number(fields[11] ?? 0) + Number(fields[12] ?? 0);
  }
  return ticks / TICKS_PER_SECOND;
}

/** Resident memory of these processes together, in MiB. */
export function residentMib(pids: readonly number[]): number {
  let kib = 0;
  for (const pid of pids) {
    const status = readOrEmpty(`/proc/${pid}/status`);
    kib += Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0);
  }
  return kib / KIB_PER_MIB;
}

/** These processes and all their descendants. */
export function withDescendants(pids: readonly number[]): number[] {
  const all = new Set(pids);
  const children = new Map<number, number[]>();
  for (const entry of Deno.readDirSync("/proc")) {
    const pid = Number(entry.name);
    if (!Number.isInteger(pid)) continue;
    const stat = readOrEmpty(`/proc/${pid}/stat`);
    const parent = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
    children.set(parent, [...children.get(parent) ?? [], pid]);
  }
  for (const pid of all) {
    for (const child of children.get(pid) ?? []) all.add(child);
  }
  return [...all];
}

/** A process may end between listing and reading. */
function readOrEmpty(path: string): string {
  try {
    return Deno.readTextFileSync(path);
  } catch {
    return "";
  }
}
