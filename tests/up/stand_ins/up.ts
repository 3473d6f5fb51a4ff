/** The real launcher with stand-ins for the services. */
import { runCli } from "../../../deploy/up/main.ts";

const here = import.meta.dirname;
Deno.exit(
  await runCli((name) => `${here}/${name === "keys" ? name : "service"}.ts`),
);
