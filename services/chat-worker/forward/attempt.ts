/** One attempt of a forwarded request at a model server. */
import type { ForwardRequest } from "@gateway/shared/forward/request";
import type { ModelServer } from "@gateway/shared/upstream/model_server";
import type { AttemptProgress } from "@gateway/shared/upstream/attempt";
import type { JobContext } from "@gateway/shared/worker/jobs/job_ports";
import type { HeldBytes } from "@gateway/shared/worker/jobs/memory";

/** The headers of an answer that say what was taken out of its request. */
export function dropHeaders(
  { dropped }: Pick<ForwardAttempt, "dropped">,
): { readonly [name: string]: string } {
  if (dropped.length === 0) return {};
  return { "x-dropped-tool-types": dropped.join(", ") };
}

/** The request, the server that is asked, and who gets the answer. */
export interface ForwardAttempt {
  readonly request: ForwardRequest;
  readonly server: ModelServer;
  readonly context: JobContext;
  readonly progress: AttemptProgress;
  /** Told to the client: types of tools that were taken out of the request. */
  readonly dropped: readonly string[];
  /** Counts what is kept of the answer. */
  readonly heldBytes: HeldBytes;
}
