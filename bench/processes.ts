/**
 * CPU seconds and resident memory of processes, from `/proc`. Linux only. Uses `cat`,
 * because Deno opens `/proc` only to programs with all permissions.
 */

const TICKS_PER_SECOND = 100;
const KIB_PER_MIB = 1_024;

/** CPU seconds, user and system, that these processes have used so far. */
export function cpuSeconds(pids: readonly number[]): number {
  let ticks = 0;
  for (const pid of pids) {
    // After the name, user and system time are the 12th and 13th fields.
    const fields = fieldsOf(read(`/proc/${pid}/stat`));
    ticks += Number(fields[11] ?? 0) + Number(fields[12] ?? 0);
  }
  return ticks / TICKS_PER_SECOND;
}

/** Resident memory of these processes together, in MiB. */
export function residentMib(pids: readonly number[]): number {
  let kib = 0;
  for (const pid of pids) {
    const status = read(`/proc/${pid}/status`);
    kib += Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0);
  }
  return kib / KIB_PER_MIB;
}

/** These processes and all their descendants. */
export function withDescendants(pids: readonly number[]): number[] {
  const children = new Map<number, number[]>();
  for (const stat of read("/proc/[0-9]*/stat").split("\n")) {
    const pid = Number.parseInt(stat);
    const parent = Number(fieldsOf(stat)[1]);
    children.set(parent, [...children.get(parent) ?? [], pid]);
  }
  const all = new Set(pids);
  for (const pid of all) {
    for (const child of children.get(pid) ?? []) all.add(child);
  }
  return [...all];
}

/** The fields after the name, which may contain spaces, and its bracket. */
function fieldsOf(stat: string): string[] {
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

/** The matching files, without those of processes that have ended. */
function read(pattern: string): string {
  const { stdout } = new Deno.Command("sh", {
    args: ["-c", `cat ${pattern} 2>/dev/null`],
  }).outputSync();
  return new TextDecoder().decode(stdout);
}
