/** Wires the chat worker. */
import { runWorkerService } from "@gateway/shared/worker/service";
import { OpenAiBackend } from "./backends/openai.ts";
import { runCompletion } from "./completion.ts";
import { readConfig } from "./config.ts";

await runWorkerService({
  family: "chat",
  readConfig,
  createBackend: (options) => new OpenAiBackend(options),
  run: runCompletion,
});
