/** The only file of this service that reads the environment. */
import { readSettingsFile } from "@gateway/shared/reload/files";
import { integer, parseEnv } from "@gateway/shared/process/env";
import { WORKER_VARIABLES, workerConfig } from "@gateway/shared/worker/config";

/**
 * Every variable of the media worker, except the backend keys that `MODELS_FILE` names.
 */
export const MEDIA_WORKER_VARIABLES = {
  ...WORKER_VARIABLES,
  MEDIA_SLOTS: integer("requests", { min: 1, max: 100_000 }).default(256)
    .describe(
      "Requests that a media worker runs at once; it rejects further ones",
    ),
};

/**
 * Reads the configuration from the environment, the models file and the files of
 * secrets. Throws a `ConfigError` that names every mistake.
 */
export function readConfig() {
  const env = Deno.env.toObject();
  const settings = parseEnv(MEDIA_WORKER_VARIABLES, env, readSettingsFile);
  const slots = settings.MEDIA_SLOTS;
  const readFile = readSettingsFile;
  return workerConfig(settings, { env, readFile, family: "media", slots });
}
