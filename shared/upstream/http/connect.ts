/** Connections to model servers: TCP, TLS, and tunnels through a proxy. */
import { type ByteConnection, openTunnel, type Proxy } from "./proxy.ts";

/**
 * Opens a connection to one server; if the signal aborts, rejects and leaves nothing
 * open.
 */
export type Connect = (signal: AbortSignal) => Promise<ByteConnection>;

/** How connections to a server are made. */
export interface ConnectOptions {
  /** PEM certificates trusted in addition to the usual ones. */
  caCerts?: string[];
  /** Leads to the server; by default it is reached directly. */
  proxy?: Proxy | null;
}

/**
 * Makes connections to the server of a URL. TCP_NODELAY, set before the first byte,
 * saves small requests the peer's delayed acknowledgement of 40 ms.
 */
export function createConnect(
  url: URL,
  { caCerts = [], proxy = null }: ConnectOptions = {},
): Connect {
  const isTls = url.protocol === "https:";
  // An IPv6 address without its brackets.
  const hostname = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const target = { hostname, port: Number(url.port || (isTls ? 443 : 80)) };
  return async (signal) => {
    const { hostname, port } = proxy ?? target;
    const tcp = await Deno.connect({ hostname, port, signal });
    tcp.setNoDelay(true);
    tcp.setKeepAlive(true);
    if (proxy !== null) {
      await untilAborted(openTunnel(tcp, proxy, target), { on: tcp, signal });
    }
    if (!isTls) return tcp;
    // A server that also offers HTTP/2 must not select it.
    const options = {
      hostname: target.hostname,
      alpnProtocols: ["http/1.1"],
      caCerts,
    };
    const tls = await Deno.startTls(tcp, options);
    await untilAborted(tls.handshake(), { on: tls, signal });
    return tls;
  };
}

/** Waits for a step of a connection, which is closed if it fails or is aborted. */
async function untilAborted(
  step: Promise<unknown>,
  { on, signal }: { on: ByteConnection; signal: AbortSignal },
): Promise<void> {
  const abort = Promise.withResolvers<never>();
  const onAbort = () => abort.reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    signal.throwIfAborted();
    await Promise.race([step, abort.promise]);
  } catch (error) {
    on.close();
    throw error;
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
