/**
 * Tells URLs to which passwords and codes may be sent: nobody else can read them on the
 * way.
 */

const LOOPBACK_HOSTS: readonly string[] = ["localhost", "127.0.0.1", "[::1]"];

/** Whether secrets may be sent to a URL: it has TLS, or is on this machine. */
export const isSafeUrl = ({ protocol, hostname }: URL): boolean =>
  protocol === "https:" ||
  (protocol === "http:" && LOOPBACK_HOSTS.includes(hostname));
