/** Generates pages and a schema from the code: `deno task docs`. */
import { catalogJsonSchema } from "@gateway/shared/models/catalog";
import { withConfiguration } from "../../deploy/docs/configuration.ts";
import { formatted, METRICS_PAGE, metricsPage } from "./metrics.ts";

const OPERATING_PAGE = new URL("../../docs/operating.md", import.meta.url);
const MODELS_SCHEMA = new URL(
  "../../deploy/models.schema.json",
  import.meta.url,
);
const USAGE = `Usage: deno task docs
Writes docs/metrics.md, the tables of docs/operating.md and deploy/models.schema.json.
`;

if (Deno.args.length > 0) {
  await Deno.stdout.write(new TextEncoder().encode(USAGE));
} else {
  await Deno.writeTextFile(METRICS_PAGE, await metricsPage());
  const page = await Deno.readTextFile(OPERATING_PAGE);
  await Deno.writeTextFile(OPERATING_PAGE, withConfiguration(page));
  const schema = await formatted(JSON.stringify(catalogJsonSchema()), "json");
  await Deno.writeTextFile(MODELS_SCHEMA, schema);
}
