/** A TCP endpoint. */
export interface Endpoint {
  hostname: string;
  port: number;
  /** Absent: plain text. */
  tls?: EndpointTls;
}

/** PEM texts: whom to trust beside the system's authorities, and who we are. */
export interface EndpointTls {
  caCerts?: string[];
  client?: { cert: string; key: string };
}

/**
 * Connects, lets `use` talk, and closes. Connecting may take `timeoutMs`, and so
 * may talking.
 *
 * Throws what `use` throws, and an Error with a plain message when there is no
 * connection or no answer in time.
 */
export async function withConnection<T>(
  endpoint: Endpoint,
  timeoutMs: number,
  use: (connection: Deno.Conn) => Promise<T>,
): Promise<T> {
  const connection = await connectWithin(endpoint, timeoutMs);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    connection.close();
  }, timeoutMs);
  try {
    return await use(connection);
  } catch (error) {
    if (isLate) throw new Error(`no answer within ${timeoutMs} ms`);
    throw error;
  } finally {
    clearTimeout(timer);
    if (!isLate) connection.close();
  }
}

async function connectWithin(
  { hostname, port, tls }: Endpoint,
  timeoutMs: number,
): Promise<Deno.Conn> {
  const connecting: Promise<Deno.Conn> = tls === undefined
    ? Deno.connect({ hostname, port })
    : Deno.connectTls({
      hostname,
      port,
      ...(tls.caCerts === undefined ? {} : { caCerts: tls.caCerts }),
      ...tls.client,
    });
  const late = Promise.withResolvers<"late">();
  const timer = setTimeout(() => late.resolve("late"), timeoutMs);
  try {
    const first = await Promise.race([connecting, late.promise]);
    if (first !== "late") return first;
    // One that comes after all has no user any more; one that fails told nobody.
    connecting.then((connection) => connection.close(), () => {});
    throw new Error(`no connection within ${timeoutMs} ms`);
  } catch (error) {
    if (error instanceof Deno.errors.ConnectionRefused) {
      throw new Error("connection refused", { cause: error });
    }
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** Writes all of `bytes`. */
export async function writeAll(
  writer: { write(bytes: Uint8Array): Promise<number> },
  bytes: Uint8Array,
): Promise<void> {
  for (let at = 0; at < bytes.length;) {
    at += await writer.write(bytes.subarray(at));
  }
}
