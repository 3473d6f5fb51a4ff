/**
 * Finds or installs nats-server and redis-server, as `up` does, and starts
 * nothing: what a test run needs on a fresh machine.
 */
import { writeAll } from "./connection.ts";
import { ensureServers } from "./ensure_servers.ts";
import { USUAL_DIRS } from "./find_program.ts";
import { startGuardian } from "./guardian.ts";
import { NATS_SOFTWARE, REDIS_SOFTWARE } from "./install.ts";
import { createOutput } from "./output.ts";
import { EXIT, UpError } from "./up_error.ts";

if (import.meta.main) Deno.exit(await installServers());

async function installServers(): Promise<number> {
  const env = Deno.env.toObject();
  const out = createOutput({
    quiet: false,
    stdout: (bytes) => writeAll(Deno.stdout, bytes),
    stderr: (bytes) => writeAll(Deno.stderr, bytes),
  });
  const directory = await Deno.makeTempDir({ prefix: "gateway_install_" });
  const guardian = startGuardian({
    launcherPid: Deno.pid,
    markFile: `${directory}/guardian`,
    stateFile: `${directory}/state`,
  });
  try {
    await ensureServers([NATS_SOFTWARE, REDIS_SOFTWARE], {
      host: {
        dirs: [...(env.PATH ?? "").split(":"), ...USUAL_DIRS],
        isRoot: Deno.uid() === 0,
        env,
      },
      guardian,
      out,
      logPath: `${directory}/install.log`,
      stopping: new AbortController().signal,
    });
    return EXIT.ok;
  } catch (error) {
    if (!(error instanceof UpError)) throw error;
    out.warn(error.message);
    return error.exitCode;
  } finally {
    await guardian.quit();
    await Deno.remove(directory, { recursive: true });
    await out.flush();
  }
}
