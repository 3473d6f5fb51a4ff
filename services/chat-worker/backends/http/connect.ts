/** A byte stream in both directions. `Deno.Conn` is one. */
export interface ByteConnection {
  /** Fills the start of `buffer`; null at the end of the stream. */
  read(buffer: Uint8Array): Promise<number | null>;
  /** Writes a part of `bytes` and says how much. */
  write(bytes: Uint8Array): Promise<number>;
  /** Ends both directions at once; a read in flight rejects. */
  close(): void;
}

/** Opens a connection to one place; rejects, with nothing left open, when the signal aborts. */
export type Connect = (signal: AbortSignal) => Promise<ByteConnection>;

/** Where {@link createConnect} connects to. */
export interface ConnectOptions {
  hostname: string;
  port: number;
  isTls: boolean;
  /** PEM certificates trusted beside the usual ones. */
  caCerts?: string[];
}

/** The one protocol we speak, so that a server that offers HTTP/2 does not choose it. */
const ALPN_PROTOCOL = "http/1.1";

/**
 * Makes the function that connects to a model server. TCP_NODELAY is set before
 * the first byte: without it a small request behind an unacknowledged one waits
 * for the peer's delayed acknowledgement, about 40 ms.
 */
export function createConnect(options: ConnectOptions): Connect {
  const { hostname, port, isTls } = options;
  return async (signal) => {
    const tcp = await Deno.connect({ hostname, port, signal });
    try {
      signal.throwIfAborted();
      tcp.setNoDelay(true);
      tcp.setKeepAlive(true);
    } catch (error) {
      tcp.close();
      throw error;
    }
    return isTls ? await handshake(tcp, options, signal) : tcp;
  };
}

async function handshake(
  tcp: Deno.TcpConn,
  options: ConnectOptions,
  signal: AbortSignal,
): Promise<ByteConnection> {
  const tls = await Deno.startTls(tcp, {
    hostname: options.hostname,
    alpnProtocols: [ALPN_PROTOCOL],
    ...(options.caCerts === undefined ? {} : { caCerts: options.caCerts }),
  });
  const onAbort = () => tls.close();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    signal.throwIfAborted();
    const { alpnProtocol } = await tls.handshake();
    if (alpnProtocol !== null && alpnProtocol !== ALPN_PROTOCOL) {
      throw new Error(`Server insists on the protocol ${alpnProtocol}`);
    }
    return tls;
  } catch (error) {
    if (!signal.aborted) tls.close();
    throw error;
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
