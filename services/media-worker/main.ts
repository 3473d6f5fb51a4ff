import { MEDIA_LIMITS } from "@gateway/shared/limits";
import { ModelServer } from "@gateway/shared/upstream/model_server";
import { runWorkerService } from "@gateway/shared/worker/service";
import { AnswerMemory } from "./attempt.ts";
import { readConfig } from "./config.ts";
import { runMedia } from "./media.ts";

const memory = new AnswerMemory(MEDIA_LIMITS.heldBytesMax);

await runWorkerService({
  family: "media",
  readConfig,
  createBackend: (options) => new ModelServer(options),
  run: (request, call, pool) => runMedia(request, call, { pool, memory }),
});
