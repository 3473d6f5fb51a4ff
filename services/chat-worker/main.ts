/** The service that runs chat completions and forwarded requests on model servers. */
import { isForwardRequest } from "@gateway/shared/forward/request";
import { runWorkerService } from "@gateway/shared/worker/service";
import { OpenAiBackend, runCompletion } from "./backends/openai.ts";
import { readConfig } from "./config.ts";
import { Forwarder } from "./forward/forwarder.ts";

const forwarder = new Forwarder();

await runWorkerService({
  family: "chat",
  readConfig,
  createBackend: (options, { cacheSaltKey }) =>
    new OpenAiBackend({ ...options, cacheSaltKey }),
  run: (request, context, tools) =>
    isForwardRequest(request)
      ? forwarder.run(request, context, tools)
      : runCompletion(request, context, tools),
});
