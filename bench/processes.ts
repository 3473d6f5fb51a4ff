/** What processes cost, from `/proc` and strace: Linux only. */
import { startProcess } from "../tests/support/process.ts";
import { waitFor } from "../tests/support/wait_for.ts";

const TICKS_PER_SECOND = 100;
const KIB_PER_MIB = 1_024;

/** Processes by what they are: `{ "edge-auth": [17, 18] }`. */
export type Processes = Readonly<Record<string, readonly number[]>>;

/** Returns the pids of all processes. */
export function pidsOf(processes: Processes): number[] {
  return Object.values(processes).flat();
}

const sum = (numbers: unknown[]) =>
  numbers.reduce<number>((total, each) => total + Number(each ?? 0), 0);

/** CPU seconds, user and system, that these processes have used so far. */
export function cpuSeconds(pids: readonly number[]): number {
  // After the name, user and system time are the 12th and 13th fields.
  const ticks = pids.flatMap((pid) => statOf(pid).slice(11, 13));
  return sum(ticks) / TICKS_PER_SECOND;
}

/** Resident memory of these processes together, in MiB. */
export function residentMib(pids: readonly number[]): number {
  const kib = pids.map((pid) =>
    /VmRSS:\s+(\d+)/.exec(read(`/proc/${pid}/status`))?.[1]
  );
  return sum(kib) / KIB_PER_MIB;
}

/** Returns the pid of a process and those of all that it started. */
export function withDescendants(pid: number): number[] {
  const all = [pid];
  for (const parent of all) {
    for (const { name } of Deno.readDirSync(`/proc`)) {
      if (!/^\d+$/.test(name)) continue;
      const [, ppid] = statOf(name);
      if (Number(ppid) === parent) all.push(Number(name));
    }
  }
  return all;
}

/** The fields after the name, which may contain spaces, and its bracket. */
function statOf(pid: number | string): string[] {
  const stat = read(`/proc/${pid}/stat`);
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

/** The file, or nothing when the process has ended. */
function read(path: string): string {
  try {
    return Deno.readTextFileSync(path);
  } catch {
    return "";
  }
}

/** Returns the last three lines of a text, in one. */
export function lastLines(text: string): string {
  return text.trim().split("\n").slice(-3).join(" ");
}

const SENDS = "sendto,sendmsg,sendmmsg,write,writev";

/**
 * How often each kind of process sends or writes during `load`: `strace -c`, which
 * makes everything slower, but counts the same. Fails where there is no strace or it
 * may not attach.
 */
export async function countSends<T>(
  processes: Processes,
  load: () => Promise<T>,
): Promise<{ sends: [role: string, count: number][]; result: T }> {
  const counting = ["-f", "-c", "-U", "calls,name", "-e", `trace=${SENDS}`];
  const tracers = Object.entries(processes).map(([role, pids]) => {
    const args = [...counting, ...pids.flatMap((pid) => ["-p", `${pid}`])];
    return { role, pids, tracer: startProcess({ command: "strace", args }) };
  });
  let result: T;
  try {
    for (const { role, pids, tracer } of tracers) {
      await waitFor(() => {
        if (!tracer.isRunning) throw new Error(tracer.output());
        return tracer.output().split("attached").length > pids.length;
      }, { what: `strace of ${role}` });
    }
    result = await load();
  } finally {
    // Interrupted, not killed: their processes go on.
    for (const { tracer } of tracers) tracer.signal("SIGINT");
    await Promise.all(tracers.map(({ tracer }) => tracer.exited));
  }
  const sends = tracers.map(({ role, tracer }): [string, number] => {
    const total = /^ *(\d+) +total$/m.exec(tracer.output())?.[1];
    return [role, Number(total ?? 0)];
  });
  return { sends, result };
}
