/**
 * Below the range from which the kernel picks ports for outgoing connections
 * (32768 and up on Linux, 49152 and up on macOS). A port from that range could be
 * taken by any client while a killed server is to come back on it, and a client
 * that dials it meanwhile can even be connected to itself.
 */
const FIRST_PORT = 12_000;
const LAST_PORT = 32_000;
const ATTEMPTS = 200;

/**
 * Returns a TCP port of 127.0.0.1 on which nobody listens now. Another process
 * may take it before the caller does, so a caller that starts a server must be
 * ready to try again.
 */
export function freePort(): number {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const port = FIRST_PORT +
      Math.floor(Math.random() * (LAST_PORT - FIRST_PORT));
    if (isFree(port)) return port;
  }
  throw new Error(
    `Found no free port between ${FIRST_PORT} and ${LAST_PORT} in ${ATTEMPTS} attempts`,
  );
}

function isFree(port: number): boolean {
  try {
    Deno.listen({ hostname: "127.0.0.1", port }).close();
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.AddrInUse) return false;
    throw error;
  }
}
