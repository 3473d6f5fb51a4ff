import { serve } from "@gateway/shared/process/serve";

export interface DrainOptions {
  hostname: string;
  /** 0 takes any free port, null opens none. */
  readyPort: number | null;
  leadMs: number;
}

/**
 * Tells proxies that this edge is about to stop, while it still takes requests, by
 * closing its ready port. That it can be connected to is all that counts; every
 * request to it is answered with 204. It is a port rather than a path because
 * proxies try another edge by themselves only when they cannot connect.
 */
export function createDrain({ hostname, readyPort, leadMs }: DrainOptions) {
  const server = readyPort === null ? null : serve({
    hostname,
    port: readyPort,
    handler: () => new Response(null, { status: 204 }),
    onError: () => new Response(null, { status: 500 }),
  });
  let hasBegun = false;
  return {
    get hasBegun(): boolean {
      return hasBegun;
    },
    /** Null if there is none. */
    readyPort: server?.port ?? null,
    /**
     * Closes the ready port and resolves after the lead time. Until then requests
     * still come, from proxies that have not noticed yet, and are served.
     */
    async begin(): Promise<void> {
      hasBegun = true;
      await Promise.all([
        server?.stop({ graceMs: 0, lastWordMs: 0 }),
        new Promise((resolve) => setTimeout(resolve, leadMs)),
      ]);
    },
  };
}
