import { fileURLToPath } from "node:url";

/** Ends the launcher's processes when the launcher is killed, see `watch.sh`. */
export interface Watcher {
  /** Tells which processes run now. Each leads its own group. */
  watch(pids: readonly number[]): void;
  /** Ends the watcher. No process may be left. */
  close(): Promise<void>;
}

const SCRIPT = fileURLToPath(new URL("watch.sh", import.meta.url));

/** Starts the watcher, which removes `stateFile` at its end. */
export function startWatcher(stateFile: string): Watcher {
  const child = new Deno.Command("sh", {
    args: [SCRIPT, stateFile],
    // Its own session: neither Ctrl-C nor the end of the terminal reaches it.
    detached: true,
    stdin: "piped",
    stdout: "null",
    stderr: "null",
  }).spawn();
  const pipe = child.stdin.getWriter();
  const write = (line: string) => {
    // Fails when the watcher was killed; the launcher goes on without it.
    pipe.write(new TextEncoder().encode(`${line}\n`)).catch(() => {});
  };
  pipe.closed.catch(() => {});
  return {
    watch: (pids) => write(pids.map((pid) => `-${pid}`).join(" ")),
    async close() {
      write("");
      await pipe.close().catch(() => {});
      await child.status;
    },
  };
}
