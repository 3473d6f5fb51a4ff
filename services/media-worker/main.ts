/** Wires the media worker. */
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import { newRequestId } from "@gateway/shared/process/ids";
import { runWorkerService } from "@gateway/shared/worker/service";
import { AnswerMemory } from "./answer_memory.ts";
import { readConfig } from "./config.ts";
import { Engine } from "./engine.ts";
import { runMedia } from "./media.ts";

const memory = new AnswerMemory(MEDIA_LIMITS.heldBytesMax);

await runWorkerService({
  family: "media",
  readConfig,
  createBackend: (options) =>
    new Engine({ ...options, memory, newBoundary: newRequestId }),
  run: runMedia,
});
