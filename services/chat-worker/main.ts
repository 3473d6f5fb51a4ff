/** The service that runs chat completions on model servers. */
import { runWorkerService } from "@gateway/shared/worker/service";
import { OpenAiBackend, runCompletion } from "./backends/openai.ts";
import { readConfig } from "./config.ts";

await runWorkerService({
  family: "chat",
  readConfig,
  createBackend: (options) => new OpenAiBackend(options),
  run: runCompletion,
});
