/** The list of models of a service that runs none itself. */
import type { FileContent, ModelCatalog } from "../models/catalog.ts";
import type { ServiceTools } from "../process/lifecycle/service.ts";
import type { LogFields } from "../process/log.ts";
import type { Reading } from "./reading.ts";
import { type Reloading, startReloading } from "./watch.ts";

/** Returns the catalog that was read first, which follows the list from now on. */
export function startCatalog(
  reading: Reading<ModelCatalog>,
  tools: ServiceTools,
): { catalog: ModelCatalog; reloading: Reloading } {
  const { value: catalog } = reading;
  const reloading = startReloading({
    reading,
    onValue({ file }) {
      catalog.replace(file);
      return countsOf(file);
    },
  }, tools);
  return { catalog, reloading };
}

/** How much a list has, for the log. */
export const countsOf = ({ models, servers }: FileContent): LogFields => ({
  models: models.length,
  servers: servers.length,
});
