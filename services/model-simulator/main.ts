/** Wires the simulator: a model server for trials and tests, without a real model. */
import { runService } from "@gateway/shared/process/lifecycle/service";
import { readConfig } from "./config.ts";
import { serveSimulator } from "./simulator.ts";

await runService({
  name: "model-simulator",
  readConfig,
  start(config, { log }) {
    const simulator = serveSimulator({ ...config.listen, pace: config.pace });
    log.warn("no_real_model", {
      message: "Answers are canned text from a simulator. " +
        "Set UPSTREAM_BASE_URL or MODELS_FILE for a real model.",
    });
    return Promise.resolve({
      ready: { port: simulator.port },
      stop: () => simulator.stop(config.drainMs),
    });
  },
});
