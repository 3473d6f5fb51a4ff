/**
 * An HTTP server that stops gracefully. `Deno.serve` alone would wait for an open
 * stream forever.
 */

export type GracefulServer = ReturnType<typeof serve>;

/** Starts listening. Throws `Deno.errors.AddrInUse` if the port is taken. */
export function serve({ hostname, port, handler, onError }: {
  hostname: string;
  port: number;
  handler: (
    request: Request,
    info: Deno.ServeHandlerInfo<Deno.NetAddr>,
  ) => Response | Promise<Response>;
  onError: (error: unknown) => Response | Promise<Response>;
}) {
  const stopping = new AbortController();
  const server = Deno.serve(
    { hostname, port, onListen: () => {}, onError },
    handler,
  );
  return {
    /** The actual port, also if any free port was requested. */
    port: server.addr.port,
    /** Aborted when the grace period is over; streams must then end. */
    stopping: stopping.signal,
    /**
     * Accepts no more connections, and resolves when every response has ended. After
     * `graceMs`, `stopping` is aborted, and the rest have `abortMs` to send an error.
     * Clients that do not read it are cut when the process ends.
     */
    stop: async (
      { graceMs, abortMs }: { graceMs: number; abortMs: number },
    ): Promise<void> => {
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
