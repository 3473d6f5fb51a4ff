/** Writes `docs/metrics.md`: `deno task docs`. */
import { METRICS_PAGE, metricsPage } from "./metrics_page.ts";

await Deno.writeTextFile(METRICS_PAGE, await metricsPage());
