/** The launcher with stand-ins for the services, otherwise as it is. */
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { runCli } from "../../../deploy/up/cli.ts";

const here = resolve(fileURLToPath(import.meta.url), "..");
const usualDirs = Deno.env.get("STAND_IN_USUAL_DIRS");

Deno.exit(
  await runCli({
    root: resolve(here, "../../.."),
    scripts: {
      "edge-auth": `${here}/edge.ts`,
      "chat-worker": `${here}/worker.ts`,
      "key-admin": `${here}/admin.ts`,
      "model-simulator": `${here}/simulator.ts`,
      keys: `${here}/keys.ts`,
    },
    ...(usualDirs === undefined ? {} : { usualDirs: usualDirs.split(":") }),
  }),
);
