/** The videos of an edge in tests. */
import type { Catalog } from "@gateway/shared/models/catalog";
import { wallNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { createVideoJobs } from "./jobs.ts";
import { createVideoKeeper } from "./keeper.ts";

/** Those of an edge that has no Redis. */
export function noVideos(catalog: Catalog) {
  const refuse = () =>
    Promise.reject(new RedisUnavailableError("offline", "there is none"));
  return createVideoKeeper({
    jobs: createVideoJobs({ redis: { command: refuse, evalScript: refuse } }),
    limiter: { endVideo: refuse, releaseVideo: refuse },
    dispatcher: {
      start() {
        throw new Error("There is no video");
      },
    },
    ...{ catalog, wallNow, log: silentLog, onMade: () => {} },
  });
}
