import { withConnection } from "./connection.ts";

const DEFAULT_PORT = 4222;
const GREETING = "INFO ";

/**
 * Checks that a NATS server greets at `url`, for example `nats://127.0.0.1:4222`.
 *
 * Throws an Error with a plain message when none does within `timeoutMs`.
 */
export async function probeNats(url: string, timeoutMs: number): Promise<void> {
  const full = url.includes("://") ? url : `nats://${url}`;
  const { hostname, port } = new URL(full);
  // Without TLS: the greeting comes in plain text, also where TLS follows.
  const endpoint = {
    hostname,
    port: port === "" ? DEFAULT_PORT : Number(port),
  };
  const greeting = await withConnection(endpoint, timeoutMs, readGreeting);
  if (greeting !== GREETING) throw new Error("what answers there is not NATS");
}

async function readGreeting(connection: Deno.Conn): Promise<string> {
  const bytes = new Uint8Array(GREETING.length);
  let size = 0;
  while (size < bytes.length) {
    const read = await connection.read(bytes.subarray(size));
    if (read === null) break;
    size += read;
  }
  return new TextDecoder().decode(bytes.subarray(0, size));
}
