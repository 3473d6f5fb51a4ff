import { findFreePorts } from "../../deploy/up/ports.ts";

/**
 * Returns a TCP port of 127.0.0.1 on which nobody listens now. Another process
 * may take it before the caller does, so a caller that starts a server must be
 * ready to try again.
 */
export function freePort(): number {
  const [port = 0] = findFreePorts(1);
  return port;
}
