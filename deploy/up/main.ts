/**
 * `deno task up`: starts the whole gateway on this machine and stops it again.
 */
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { runCli } from "./cli.ts";
import { productScripts } from "./service_programs.ts";

if (import.meta.main) {
  const root = resolve(fileURLToPath(import.meta.url), "../../..");
  Deno.exit(await runCli({ root, scripts: productScripts(root) }));
}
