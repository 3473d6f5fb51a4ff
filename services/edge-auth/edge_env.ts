/** What the middlewares know of a request, in Hono's terms. */
import type { Principal } from "@gateway/shared/keys/record";
import type { Exchange } from "./http/server.ts";

export interface EdgeVariables {
  /** 32 hex characters; callers see it behind `req_`. */
  requestId: string;
  /** When it arrived. */
  startedAtMs: number;
  /** Set once the caller is known. */
  principal: Principal;
  /** A chat request that was admitted is logged when its run is over. */
  hasRun: true | undefined;
}

export interface EdgeEnv {
  Variables: EdgeVariables;
  Bindings: Exchange;
}
