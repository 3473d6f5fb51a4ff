/** The charts of NATS and Valkey, with the values of deploy/helm/beside. */
import { installOnce } from "../../support/process.ts";
import type { KubernetesObject } from "./objects.ts";
import { helm, HELM_FOLDER, objectsIn } from "./rendered_chart.ts";

/** Folders with the charts. */
export interface StoreCharts {
  readonly nats: string;
  readonly valkey: string;
}

const NATS_VERSION = "2.14.2";
const VALKEY_VERSION = "0.11.0";
const PULL_MS = 120_000;
const BESIDE = "deploy/helm/beside";
/** The settings with which docs/kubernetes.md installs each. */
export const STORE_VALUES = {
  nats: [`--values=${BESIDE}/nats.yaml`],
  valkey: [
    `--values=${BESIDE}/valkey.yaml`,
    "--set-file=valkeyConfig=deploy/redis/redis.conf",
  ],
} as const;
const PULL = `rm -rf charts
helm=${HELM_FOLDER}/helm
$helm pull nats --repo https://nats-io.github.io/k8s/helm/charts \\
  --version ${NATS_VERSION} --untar --untardir charts
$helm pull valkey --repo https://valkey.io/valkey-helm \\
  --version ${VALKEY_VERSION} --untar --untardir charts`;

/**
 * The charts: those that `NATS_CHART` and `VALKEY_CHART` name, or those of their
 * projects, pulled once. Returns the reason if they cannot be had.
 */
export async function takeCharts(): Promise<StoreCharts | string> {
  const nats = Deno.env.get("NATS_CHART");
  const valkey = Deno.env.get("VALKEY_CHART");
  if (nats !== undefined && valkey !== undefined) return { nats, valkey };
  const cwd = HELM_FOLDER.replace(/\/bin$/, "");
  try {
    const signal = AbortSignal.timeout(PULL_MS);
    await installOnce("store-charts", PULL, { cwd, signal });
  } catch (error) {
    return String(error).trim().split("\n").at(-1) ?? "";
  }
  return { nats: `${cwd}/charts/nats`, valkey: `${cwd}/charts/valkey` };
}

/** The objects of both charts, as docs/kubernetes.md installs them. */
export async function renderStores(
  { nats, valkey }: StoreCharts,
  version: string,
): Promise<KubernetesObject[]> {
  const where = ["--namespace", "gateway", "--kube-version", version];
  const rendered = [
    await helm("template", "nats", nats, ...where, ...STORE_VALUES.nats),
    await helm("template", "valkey", valkey, ...where, ...STORE_VALUES.valkey),
  ];
  return await objectsIn(rendered.join("\n---\n"));
}
