/** The metrics of the list of models, in each process that has it. */
import { counter, gauge } from "../process/metrics.ts";
import type { ReloadResult } from "./reloader.ts";

const RESULTS: readonly ReloadResult[] = ["changed", "unchanged", "refused"];

/** What is counted of the list, and what is known of it. */
export const RELOAD_METRICS = {
  reloads: counter("gateway_models_reload_total", {
    help:
      "Times that the list of models or a key of a model server was read again: `changed`, `unchanged` (SIGHUP only), `refused` (it has mistakes, and the previous one stays).",
    labels: ["result"],
    zeros: RESULTS.map((result) => [result]),
  }),
  age: gauge("gateway_models_age_seconds", {
    help: "How long ago the list of models that is in use was read.",
  }),
  refused: gauge("gateway_models_refused", {
    help:
      "1 while the list of models has mistakes, so that an older one is in use, else 0.",
  }),
};
