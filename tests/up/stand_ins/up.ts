/** The real launcher with stand-ins for the services. */
import { runCli } from "../../../deploy/up/main.ts";

Deno.exit(await runCli(() => `${import.meta.dirname}/service.ts`));
