/**
 * An HTTP server that stops gracefully. `Deno.serve` alone would wait for an open
 * stream forever.
 */

/** A server that listens, until it is stopped. */
export interface GracefulServer {
  /** The actual port, also if any free port was requested. */
  readonly port: number;
  /** Aborted when the grace period is over; streams must then end. */
  readonly stopping: AbortSignal;
  /**
   * Accepts no more connections, and resolves when every response has ended. After
   * `graceMs`, `stopping` is aborted, and the rest have `abortMs` to send an error.
   * Clients that do not read it are cut when the process ends.
   */
  stop(periods: { graceMs: number; abortMs: number }): Promise<void>;
}

/** What {@link serve} takes. */
export interface ServeOptions {
  hostname: string;
  /** 0 for any free port. */
  port: number;
  handler: (
    request: Request,
    info: Deno.ServeHandlerInfo<Deno.NetAddr>,
  ) => Response | Promise<Response>;
  /** The response for a request whose handler has thrown. */
  onError: (error: unknown) => Response | Promise<Response>;
}

/** Starts listening. Throws `Deno.errors.AddrInUse` if the port is taken. */
export function serve(
  { hostname, port, handler, onError }: ServeOptions,
): GracefulServer {
  const stopping = new AbortController();
  const server = Deno.serve(
    { hostname, port, onListen: () => {}, onError },
    handler,
  );
  return {
    port: server.addr.port,
    stopping: stopping.signal,
    async stop({ graceMs, abortMs }): Promise<void> {
      const finished = server.shutdown();
      if (await settlesWithin(finished, graceMs)) return;
      stopping.abort(new Error("The server is shutting down"));
      await settlesWithin(finished, abortMs);
    },
  };
}

/** Whether the promise settles in time. Leaves no timer behind. */
export async function settlesWithin(
  promise: Promise<unknown>,
  timeoutMs: number,
): Promise<boolean> {
  const { promise: timeout, resolve } = Promise.withResolvers<false>();
  const timer = setTimeout(() => resolve(false), timeoutMs);
  try {
    return await Promise.race([promise.then(() => true), timeout]);
  } finally {
    clearTimeout(timer);
  }
}
