/** The only file of this service that reads the environment. */
import { readSettingsFile } from "@gateway/shared/reload/files";
import {
  ConfigError,
  integer,
  parseEnv,
  secret,
} from "@gateway/shared/process/env";
import {
  UPSTREAM_KEY_VARIABLES,
  WORKER_VARIABLES,
  workerConfig,
} from "@gateway/shared/worker/config";

/**
 * Every variable of the chat worker, except the backend keys that `MODELS_FILE` names.
 */
export const CHAT_WORKER_VARIABLES = {
  ...WORKER_VARIABLES,
  ...UPSTREAM_KEY_VARIABLES,
  CACHE_SALT_KEY: secret().optional().describe(
    "Key of the salts that keep accounts apart in the caches of model servers with cache_salt; the same for all workers. If absent, each worker makes one up, so that they share no caches",
  ),
  SLOTS: integer("requests", { min: 1, max: 100_000 }).default(1_024)
    .describe("Requests that a worker runs at once; it rejects further ones"),
};

/**
 * Reads the configuration from the environment, the models file and the files of
 * secrets. Throws a {@link ConfigError} that names every mistake, or that there is no
 * model for this service.
 */
export function readConfig() {
  const env = Deno.env.toObject();
  const settings = parseEnv(CHAT_WORKER_VARIABLES, env, readSettingsFile);
  const config = workerConfig(settings, {
    env,
    readFile: readSettingsFile,
    family: "chat",
    slots: settings.SLOTS,
    cacheSaltKey: settings.CACHE_SALT_KEY,
  });
  const { models, servers } = config.list.value.file;
  if (models.length + servers.length > 0) return config;
  throw new ConfigError("the models file", [
    'models: none has the kind "chat", "embedding" or "rerank", so this ' +
    "service has nothing to run. Models of other kinds need only the media-worker",
  ]);
}
