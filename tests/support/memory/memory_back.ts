/** Whether a process gives back what it has held. */
import { print } from "../process.ts";
import { startStopwatch, waitFor } from "../wait_for.ts";
import { residentBytes } from "./memory_cgroup.ts";

const MIB = 1024 * 1024;
/** V8 looks for what was left behind after 30 idle seconds. */
const BACK_MS = 60_000;
const LOOK_MS = 1_000;
/** A part of the size that it had when it was idle before. */
const IDLE_SIZE_MAX = 1.3;

/**
 * Waits until a process that does nothing any more is within 1.3 times the size that it
 * had when it was idle after ordinary requests, or within `times` that size; fails
 * after a minute.
 */
export async function waitUntilBack(
  pid: number,
  idleBytes: number,
  times: number = IDLE_SIZE_MAX,
): Promise<void> {
  using watch = startStopwatch();
  let size = 0;
  const report = () =>
    `${(size / idleBytes).toFixed(2)} times its idle size, ` +
    `${Math.round(size / MIB)} MiB, after ${Math.round(watch.ms / 1_000)} s`;
  await waitFor(async () => {
    size = (await residentBytes(pid)).now;
    return size <= times * idleBytes;
  }, {
    what: () => `memory to come back; it is ${report()}`,
    timeoutMs: BACK_MS,
    intervalMs: LOOK_MS,
  });
  print(report());
}
