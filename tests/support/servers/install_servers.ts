/** Finds or installs nats-server and redis-server for a test run, as `up` does. */
import { ensureServers, programDirs } from "../../../deploy/up/stores.ts";
import { createOutput, UpError } from "../../../deploy/up/terminal.ts";

const out = createOutput();
try {
  await ensureServers(["nats-server", "redis-server"], {
    dirs: programDirs(Deno.env.get("PATH")),
    isRoot: Deno.uid() === 0,
    out,
    stopping: new AbortController().signal,
  });
} catch (error) {
  if (!(error instanceof UpError)) throw error;
  out.warn(error.message);
  Deno.exitCode = error.exitCode;
}
