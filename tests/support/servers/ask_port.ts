/** Asks a port of this machine, without any other module: stand-ins start fast. */

/** What `Deno.connectTls` wants of a client: whom it trusts and who it is, PEM text. */
type ClientTls = { caCerts: string[]; cert: string; key: string };

/**
 * Sends `request` to a port of this machine, over TLS with `tls`, and returns the first
 * bytes of the answer as text.
 */
export async function askPort(port: number, request: string, tls?: ClientTls) {
  const address = { hostname: "127.0.0.1", port };
  using connection = tls === undefined
    ? await Deno.connect(address)
    : await Deno.connectTls({ ...address, ...tls });
  if (request !== "") await connection.write(new TextEncoder().encode(request));
  const buffer = new Uint8Array(16 * 1024);
  const length = await connection.read(buffer) ?? 0;
  return new TextDecoder().decode(buffer.subarray(0, length));
}
