import { errorMessage } from "@gateway/shared/process/env";
import { UpError } from "./terminal.ts";

export const LOOPBACK = "127.0.0.1";
/**
 * Below the range from which kernels pick ports for outgoing connections (32768
 * and up on Linux, 49152 and up on macOS), which any client may take at any time.
 */
const FIRST_PORT = 12_000;
const LAST_PORT = 32_000;
const ATTEMPTS = 1_000;

/**
 * Different TCP ports that are free now. Another process may take one before the
 * caller does.
 */
export function findFreePorts(count: number, hostname = LOOPBACK): number[] {
  const ports = new Set<number>();
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const port = FIRST_PORT +
      Math.floor(Math.random() * (LAST_PORT - FIRST_PORT));
    if (isFreePort(port, hostname)) ports.add(port);
    if (ports.size === count) return [...ports];
  }
  throw new UpError(
    `Cannot find ${count} free ports between ${FIRST_PORT} and ${LAST_PORT}`,
  );
}

/** Whether no process listens on the port. Throws for an address that is not this machine's. */
export function isFreePort(port: number, hostname = LOOPBACK): boolean {
  try {
    Deno.listen({ hostname, port }).close();
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.AddrInUse) return false;
    throw error;
  }
}

/** Throws an {@link UpError} that names the option when `port` is not available; 0 checks the address only. */
export function requireFreePort(
  hostname: string,
  port: number,
  option: string,
): void {
  try {
    Deno.listen({ hostname, port }).close();
  } catch (error) {
    throw new UpError(
      `Cannot listen on ${hostname}:${port}: ${errorMessage(error)}\n` +
        `Change it with ${option} or --host (port 0 = any free port)`,
    );
  }
}
