/** Finds or installs nats-server and redis-server, as `up` does: for a test run. */
import {
  ensureServers,
  NATS_SOFTWARE,
  REDIS_SOFTWARE,
  USUAL_DIRS,
} from "./install.ts";
import { createOutput } from "./output.ts";
import { UpError } from "./up_error.ts";

const out = createOutput(false);
try {
  await ensureServers([NATS_SOFTWARE, REDIS_SOFTWARE], {
    dirs: [...(Deno.env.get("PATH") ?? "").split(":"), ...USUAL_DIRS],
    isRoot: Deno.uid() === 0,
    out,
    stopping: new AbortController().signal,
  });
} catch (error) {
  if (!(error instanceof UpError)) throw error;
  out.warn(error.message);
  Deno.exitCode = error.exitCode;
}
