import { serve } from "@gateway/shared/process/serve";

export interface DrainOptions {
  hostname: string;
  /** 0 takes any free port, null opens none. */
  readyPort: number | null;
  leadMs: number;
}

/**
 * Announces to proxies that this edge is about to stop, while it still accepts
 * requests, by closing its ready port. Only the connection matters: every request to
 * the port is answered with 204. It is a port rather than a path because proxies
 * try another edge on their own only when they cannot connect.
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
    /** Null if there is no ready port. */
    readyPort: server?.port ?? null,
    /**
     * Closes the ready port and resolves after the lead time. Until then, requests
     * from proxies that have not noticed yet still arrive and are served.
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
