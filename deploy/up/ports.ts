import { UpError } from "./up_error.ts";

const LOOPBACK = "127.0.0.1";

/**
 * Below the range from which the kernel picks ports for outgoing connections
 * (32768 and up on Linux, 49152 and up on macOS). A port from that range could be
 * taken by any client between the look and the start of the server, and a client
 * that dials it meanwhile can even be connected to itself.
 */
const FIRST_PORT = 12_000;
const LAST_PORT = 32_000;
const ATTEMPTS = 200;

/**
 * Different TCP ports that nobody listens on just now. Another process may take one
 * before the caller does.
 */
export function findFreePorts(
  count: number,
  hostname: string = LOOPBACK,
): number[] {
  const ports = new Set<number>();
  for (let attempt = 0; attempt < ATTEMPTS * count; attempt++) {
    const port = FIRST_PORT +
      Math.floor(Math.random() * (LAST_PORT - FIRST_PORT));
    if (isFree(hostname, port)) ports.add(port);
    if (ports.size === count) return [...ports];
  }
  throw new UpError(
    `Cannot find ${count} free ports between ${FIRST_PORT} and ${LAST_PORT}`,
  );
}

function isFree(hostname: string, port: number): boolean {
  try {
    Deno.listen({ hostname, port }).close();
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.AddrInUse) return false;
    throw error;
  }
}

/**
 * Checks that a port can be listened on; 0 checks the address alone.
 *
 * Throws an {@link UpError} that says which option chooses another.
 */
export function requireFreePort(
  hostname: string,
  port: number,
  option: string,
): void {
  try {
    Deno.listen({ hostname, port }).close();
  } catch (error) {
    throw new UpError(describe(error, hostname, port, option));
  }
}

function describe(
  error: unknown,
  hostname: string,
  port: number,
  option: string,
): string {
  if (error instanceof Deno.errors.AddrInUse) {
    return `Port ${port} is in use: stop what listens there, or choose another with ${option} (0 = any free port)`;
  }
  if (error instanceof Deno.errors.PermissionDenied) {
    return `Not allowed to listen on port ${port}: choose one above 1023 with ${option}`;
  }
  const why = error instanceof Error ? error.message : String(error);
  return `Cannot listen on ${hostname}:${port}: ${why}`;
}
