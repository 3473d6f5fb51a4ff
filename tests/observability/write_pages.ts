/** Writes the parts of `docs` that are made from the code: `deno task docs`. */
import { withConfiguration } from "../../deploy/docs/configuration.ts";
import { METRICS_PAGE, metricsPage } from "./metrics_page.ts";

const OPERATING_PAGE = new URL("../../docs/operating.md", import.meta.url);
const USAGE = "Usage: deno task docs\n" +
  "Writes docs/metrics.md and the tables of docs/operating.md.\n";

if (Deno.args.length > 0) {
  await Deno.stdout.write(new TextEncoder().encode(USAGE));
} else {
  await Deno.writeTextFile(METRICS_PAGE, await metricsPage());
  const page = await Deno.readTextFile(OPERATING_PAGE);
  await Deno.writeTextFile(OPERATING_PAGE, withConfiguration(page));
}
