/** TCP ports of this machine. */
import { errorMessage } from "@gateway/shared/process/env";
import type { UpOptions } from "./options.ts";
import { UpError } from "./terminal.ts";

/** The address that only this machine reaches. */
export const LOOPBACK = "127.0.0.1";
/**
 * Below the ports that kernels pick for outgoing connections, which any client may take
 * at any time.
 */
const FIRST_PORT = 12_000;
const LAST_PORT = 32_000;
const ATTEMPTS = 1_000;

/**
 * Different TCP ports that are free now. Another process may take one before the caller
 * does.
 */
export function findFreePorts(count: number, hostname = LOOPBACK): number[] {
  const ports = new Set<number>();
  for (let attempt = 0; ports.size < count; attempt++) {
    if (attempt === ATTEMPTS) {
      throw new UpError(`Cannot find ${count} free ports: stop other programs`);
    }
    const span = LAST_PORT - FIRST_PORT;
    const port = FIRST_PORT + Math.floor(Math.random() * span);
    if (whyNotFree(port, hostname) === undefined) ports.add(port);
  }
  return [...ports];
}

/**
 * Why no server could listen on the port now; `undefined` if one could. 0 checks the
 * address only.
 */
export function whyNotFree(
  port: number,
  hostname = LOOPBACK,
): string | undefined {
  try {
    Deno.listen({ hostname, port }).close();
    return undefined;
  } catch (error) {
    return errorMessage(error);
  }
}

/**
 * Throws an {@link UpError} that names the option when a port or the address is not
 * available.
 */
export function requireFreePorts({ host, port, consolePort }: UpOptions): void {
  const options = [["--port", port], ["--console-port", consolePort]] as const;
  for (const [option, port] of options) {
    const why = whyNotFree(port, host);
    if (why === undefined) continue;
    throw new UpError(
      `Cannot listen on ${host}:${port}: ${why}\n` +
        `Change it with ${option} or --host (port 0 = any free port)`,
    );
  }
}
