/** What commands ask workers. */
import type { FollowedWorkers } from "../domain/models/worker_follower.ts";

/** What workers tell, as long as the command runs. */
export interface AskedWorkers
  extends
    Pick<FollowedWorkers, "backends" | "follower" | "mistakes">,
    AsyncDisposable {
  /** Tells edges and workers the overrides; false: the bus is down. */
  tellOverrides(): Promise<boolean>;
}
