/** Finds or installs nats-server and redis-server, as `up` does: for a test run. */
import {
  ensureServers,
  NATS_SOFTWARE,
  REDIS_SOFTWARE,
  USUAL_DIRS,
} from "./install.ts";
import { createOutput } from "./output.ts";
import { EXIT, UpError } from "./up_error.ts";

if (import.meta.main) Deno.exit(await installServers());

async function installServers(): Promise<number> {
  const env = Deno.env.toObject();
  const out = createOutput(false);
  const logPath = await Deno.makeTempFile({ prefix: "gateway_install_" });
  try {
    await ensureServers([NATS_SOFTWARE, REDIS_SOFTWARE], {
      dirs: [...(env.PATH ?? "").split(":"), ...USUAL_DIRS],
      isRoot: Deno.uid() === 0,
      env,
      out,
      logPath,
      stopping: new AbortController().signal,
    });
    await Deno.remove(logPath);
    return EXIT.ok;
  } catch (error) {
    if (!(error instanceof UpError)) throw error;
    out.warn(error.message);
    return error.exitCode;
  } finally {
    await out.flush();
  }
}
