/** The reports of workers that commands need. */
import type { FollowedWorkers } from "./worker_follower.ts";

/** Reports of workers, which are collected while the command runs. */
export interface ConnectedWorkers
  extends
    Pick<FollowedWorkers, "backends" | "follower" | "mistakes" | "waiting">,
    AsyncDisposable {
  /** Tells edges and workers the overrides. Returns false if the bus is down. */
  tellOverrides(): Promise<boolean>;
}
