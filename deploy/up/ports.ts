import { UpError } from "./up_error.ts";

const LOOPBACK = "127.0.0.1";

/** Different TCP ports that nobody listens on just now. */
export function findFreePorts(
  count: number,
  hostname: string = LOOPBACK,
): number[] {
  // All held at once, so that none is found twice.
  const listeners = Array.from(
    { length: count },
    () => Deno.listen({ hostname, port: 0 }),
  );
  const ports = listeners.map((listener) => listener.addr.port);
  for (const listener of listeners) listener.close();
  return ports;
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
