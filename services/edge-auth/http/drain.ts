import { serve } from "@gateway/shared/process/serve";

export interface DrainOptions {
  hostname: string;
  /** 0 takes any free port, null opens none. */
  readyPort: number | null;
  leadMs: number;
}

/**
 * Tells proxies that this edge will go, before it takes no more requests, by a port
 * that is open until then. It answers everything with 204: that it can be connected
 * to is the answer. It is a port and no path because proxies try another edge by
 * themselves when they cannot connect, and only then.
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
    /** Null when there is none. */
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
