/** The service that runs requests for images, audio and videos on model servers. */
import { ModelServer } from "@gateway/shared/upstream/model_server";
import { runWorkerService } from "@gateway/shared/worker/service";
import { readConfig } from "./config.ts";
import { runMedia } from "./media.ts";

await runWorkerService({
  family: "media",
  readConfig,
  createBackend: (options) => new ModelServer(options),
  run: runMedia,
});
