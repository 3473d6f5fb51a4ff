/** What the public API needs. */
import type { ClientAddress } from "@gateway/shared/process/client_address";
import type { WallNow } from "@gateway/shared/process/clock";
import type { RefusalLog } from "../http/refusal_log.ts";
import type { AnswersDependencies } from "../kept/handlers.ts";
import type { KeyLookup } from "../keys/authenticate.ts";
import type { ModelsDependencies } from "../requests/models.ts";
import type { VideoDependencies } from "../videos/handlers.ts";

/** Counts the responses of the public API, by route and status. */
export interface ResponseMetrics {
  /**
   * A response was sent, or its client has disconnected, `durationMs` after the request
   * arrived.
   */
  answered(route: string, status: number, durationMs: number): void;
}

/** What handlers of all routes need, and what happens before and after each. */
export interface AppDependencies
  extends
    Omit<VideoDependencies, "metrics">,
    Pick<ModelsDependencies, "isRun">,
    AnswersDependencies {
  keys: Pick<KeyLookup, "find">;
  clientAddress: ClientAddress;
  /** Origins of web pages that may call it; if empty, none may. */
  corsOrigins: readonly string[];
  /**
   * Whether this edge is about to stop; each connection then closes after its next
   * response.
   */
  isDraining: () => boolean;
  wallNow: WallNow;
  metrics: VideoDependencies["metrics"] & ResponseMetrics;
  refusals: Pick<RefusalLog, "add">;
}
