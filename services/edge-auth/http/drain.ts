/** How an edge goes so that proxies turn away from it before it is gone. */
import { serve } from "@gateway/shared/process/serve";

/** The end of an edge, in two steps: announced first, while all is served as before. */
export interface Departure {
  /** From the announcement on. */
  readonly hasBegun: boolean;
  /** The port that is open until then; null when there is none. */
  readonly readyPort: number | null;
  /**
   * Closes the ready port and resolves after the lead time. Until then requests
   * still come, from proxies that have not noticed yet, and are served.
   */
  announce(): Promise<void>;
  /** Passes an answer on; from the announcement on with the word that no more is taken on this connection. */
  mark(response: Response): Response;
}

/** Where the ready port is and how long the lead time takes. */
export interface DepartureOptions {
  hostname: string;
  /** 0 takes any free port, null opens none. */
  readyPort: number | null;
  leadMs: number;
}

/**
 * Opens the ready port. It says yes (204) to everything: that it can be connected
 * to is the answer. It is a port and no path because proxies try another edge by
 * themselves when they cannot connect, and only then.
 */
export function createDeparture(options: DepartureOptions): Departure {
  const door = options.readyPort === null ? null : serve({
    hostname: options.hostname,
    port: options.readyPort,
    handler: () => new Response(null, { status: 204 }),
    onError: () => new Response(null, { status: 500 }),
  });
  let hasBegun = false;
  return {
    get hasBegun() {
      return hasBegun;
    },
    readyPort: door?.port ?? null,
    async announce() {
      hasBegun = true;
      await Promise.all([
        door?.stop({ graceMs: 0, lastWordMs: 0 }),
        new Promise((resolve) => setTimeout(resolve, options.leadMs)),
      ]);
    },
    mark(response) {
      if (hasBegun) response.headers.set("connection", "close");
      return response;
    },
  };
}
