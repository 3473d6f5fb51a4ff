/** The front proxy of compose.yaml as a process: Caddy with the very file of `deploy/`. */
import { fileURLToPath } from "node:url";
import { type RunningProcess, startProcess } from "../process.ts";
import { freePort } from "../local_server.ts";
import { waitFor } from "../wait_for.ts";

const CADDYFILE = fileURLToPath(
  new URL("../../../deploy/proxy/Caddyfile", import.meta.url),
);

/** Where the proxy finds what is behind it, all on this machine. */
export interface FrontProxyOptions {
  httpsPort: number;
  edgePort: number;
  edgeReadyPort: number;
  consolePort: number;
}

/** A proxy with a certificate of its own authority for `localhost` and `console.localhost`. */
export type FrontProxy = Awaited<ReturnType<typeof startFrontProxy>>;

/** Starts Caddy and returns when it has its certificates and answers. */
export async function startFrontProxy(options: FrontProxyOptions) {
  const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
  const healthPort = freePort();
  const process = startProcess({
    command: "caddy",
    args: ["run", "--adapter", "caddyfile", "--config", CADDYFILE],
    env: {
      HOME: directory,
      XDG_DATA_HOME: directory,
      XDG_CONFIG_HOME: directory,
      HTTPS_PORT: String(options.httpsPort),
      HTTP_PORT: String(freePort()),
      HEALTH_PORT: String(healthPort),
      EDGE_HOST: "localhost",
      EDGE_PORT: String(options.edgePort),
      EDGE_READY_PORT: String(options.edgeReadyPort),
      CONSOLE_UPSTREAM: `127.0.0.1:${options.consolePort}`,
    },
  });
  const stop = async () => {
    await process.kill();
    await Deno.remove(directory, { recursive: true });
  };
  try {
    await waitFor(() => isHealthy(process, healthPort), {
      what: () => `the proxy: ${process.output()}`,
    });
    /** The authority, as PEM text. */
    const ca = await Deno.readTextFile(
      `${directory}/caddy/pki/authorities/local/root.crt`,
    );
    return { ca, output: () => process.output(), [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function isHealthy(process: RunningProcess, port: number) {
  if (!process.isRunning) throw new Error(process.output());
  try {
    const response = await fetch(`http://127.0.0.1:${port}/healthz`);
    await response.body?.cancel();
    return response.ok;
  } catch {
    return false; // Not listening yet.
  }
}
