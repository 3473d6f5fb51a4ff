/**
 * A bound on the memory of a process, as compose gives it to a container: a group of
 * the kernel's memory controller, version 1 or 2. A process that exceeds it is killed.
 * Source: the kernel's cgroup-v1/memory and cgroup-v2 documents.
 */
import { runProcess } from "../process.ts";
import { waitFor } from "../wait_for.ts";

const ROOT = "/sys/fs/cgroup";
/** Becomes a member of the group `$1`, then the program that follows. */
const JOIN = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"';
const REMOVED_MS = 10_000;

/** A group whose members together get no more memory than its bound. */
export interface MemoryCgroup extends AsyncDisposable {
  /** The command line that runs `command` as a member of the group. */
  inside(command: string, args: readonly string[]): {
    command: string;
    args: string[];
  };
  /** How many members the kernel killed because the bound was reached. */
  killCount(): Promise<number>;
}

/**
 * Makes a group that is removed, when its members have ended, on disposal. Returns the
 * reason in words if this machine lets no such group be made.
 */
export async function createMemoryCgroup(
  { bytesMax }: { bytesMax: number },
): Promise<MemoryCgroup | string> {
  const name = `gateway-test-${crypto.randomUUID()}`;
  const reasons: string[] = [];
  for (const version of [V2, V1]) {
    const path = `${version.folder}/${name}`;
    try {
      await version.prepare?.();
      await Deno.mkdir(path);
    } catch (error) {
      reasons.push(`${path}: ${error instanceof Error ? error.message : ""}`);
      continue;
    }
    const group = new Group(path, version.killCountFile);
    try {
      for (const [file, value] of version.bounds(bytesMax)) {
        await write(`${path}/${file}`, value);
      }
      return group;
    } catch (error) {
      reasons.push(`${path}: ${error instanceof Error ? error.message : ""}`);
      await group[Symbol.asyncDispose]();
    }
  }
  return `no memory cgroup can be made: ${reasons.join("; ")}`;
}

/** What differs between the versions of the kernel's interface. */
interface Version {
  folder: string;
  prepare?(): Promise<void>;
  /** Files and what is written to them, in order. */
  bounds(bytesMax: number): [file: string, value: string][];
  /** Its line `oom_kill N` has the number of killed members. */
  killCountFile: string;
}

const V2: Version = {
  folder: ROOT,
  async prepare() {
    await write(`${ROOT}/cgroup.subtree_control`, "+memory");
  },
  bounds: (bytesMax) => [
    ["memory.max", String(bytesMax)],
    ["memory.swap.max", "0"],
  ],
  killCountFile: "memory.events",
};
const V1: Version = {
  folder: `${ROOT}/memory`,
  bounds: (bytesMax) => [["memory.limit_in_bytes", String(bytesMax)]],
  killCountFile: "memory.oom_control",
};

/** Never creates a file: the folder may be none of the kernel's. */
const write = (path: string, value: string): Promise<void> =>
  Deno.writeTextFile(path, value, { create: false });

class Group implements MemoryCgroup {
  readonly #path: string;
  readonly #killCountFile: string;

  constructor(path: string, killCountFile: string) {
    this.#path = path;
    this.#killCountFile = killCountFile;
  }

  inside(command: string, args: readonly string[]) {
    return {
      command: "/bin/sh",
      args: ["-c", JOIN, "sh", this.#path, command, ...args],
    };
  }

  async killCount(): Promise<number> {
    const file = `${this.#path}/${this.#killCountFile}`;
    const text = await Deno.readTextFile(file);
    return Number(/^oom_kill (\d+)$/m.exec(text)?.[1]);
  }

  /** The kernel refuses to remove a group that still has members. */
  async [Symbol.asyncDispose](): Promise<void> {
    const isRemoved = () =>
      Deno.remove(this.#path).then(() => true, () => false);
    await waitFor(isRemoved, {
      what: `the members of ${this.#path} to end`,
      timeoutMs: REMOVED_MS,
    });
  }
}

/** Resident memory of a process in bytes: now, and at its highest so far. */
export interface ResidentBytes {
  now: number;
  highest: number;
}

/** Reads `VmRSS` and `VmHWM` of a process on Linux, see proc(5). */
export async function residentBytes(pid: number): Promise<ResidentBytes> {
  // By a program: a Deno process may read other processes only with all permissions.
  const status = await runProcess("cat", [`/proc/${pid}/status`]);
  const bytes = (field: string) =>
    1_024 *
    Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(status)?.[1]);
  return { now: bytes("VmRSS"), highest: bytes("VmHWM") };
}
