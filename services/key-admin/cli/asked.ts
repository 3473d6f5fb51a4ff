/** What commands ask edges and workers. */
import type { FollowedWorkers } from "../domain/models/worker_follower.ts";
import type { RunningRequests } from "../domain/running/running_requests.ts";

/** What workers tell, as long as the command runs. */
export interface AskedWorkers
  extends Pick<FollowedWorkers, "backends" | "follower">, AsyncDisposable {
  /** Tells edges and workers the overrides; false: the bus is down. */
  tellOverrides(): Promise<boolean>;
}

/** What runs now, as long as the command runs. */
export type AskedRunning =
  & Pick<RunningRequests, "list" | "stop">
  & AsyncDisposable;
