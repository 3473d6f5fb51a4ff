/** The service that runs chat completions on model servers. */
import { AnswerMemory } from "@gateway/shared/worker/answer_memory";
import { runWorkerService } from "@gateway/shared/worker/service";
import { OpenAiBackend, runCompletion } from "./backends/openai.ts";
import { readConfig } from "./config.ts";

const memory = new AnswerMemory();

await runWorkerService({
  family: "chat",
  readConfig,
  createBackend: (options) => new OpenAiBackend(options),
  run: (request, call, pool) => runCompletion(request, call, { pool, memory }),
});
