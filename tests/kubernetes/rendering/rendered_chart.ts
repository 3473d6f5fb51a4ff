/** Helm and a validator of Kubernetes objects, installed once, and what they render. */
import { z } from "zod";
import { CACHE, installOnce, runProcess } from "../../support/process.ts";
import { type KubernetesObject, objectSchema } from "./objects.ts";

const cwd = `${CACHE}/chat-gateway-kubernetes`;
/** Where the program `helm` is. */
export const HELM_FOLDER = `${cwd}/bin`;
const HELM_VERSION = "v4.3.2";
/** Has the schemas of all versions of Kubernetes up to this one. */
const VALIDATOR_VERSION = "1.37.0";
const PYTHON = `${cwd}/validator/bin/python`;
const CHART = "deploy/helm/chat-gateway";
/** Names of the files in deploy/helm/examples. */
export const EXAMPLES = ["trial", "production", "managed"] as const;
/** Versions of Kubernetes that are supported now. */
export const KUBERNETES_VERSIONS = ["1.35", "1.36", "1.37"] as const;

/** Settings for one rendering: example files, and values on top of them. */
export interface Rendering {
  readonly example: string;
  /** Values as `--set` takes them. */
  readonly set?: readonly string[];
  readonly version?: string;
}

/** Installs what the tests need, or throws why that cannot be had. */
export async function installTools(): Promise<void> {
  await installOnce(
    "helm",
    `GOBIN=$PWD/bin go install helm.sh/helm/v4/cmd/helm@${HELM_VERSION}`,
    { cwd },
  );
  await installOnce(
    "validator",
    `python3 -m venv validator
     validator/bin/pip install --quiet --no-input kubernetes-validate==${VALIDATOR_VERSION}`,
    { cwd },
  );
}

/** Runs helm; throws with what it said if it fails. */
export function helm(...args: string[]): Promise<string> {
  return runProcess(`${HELM_FOLDER}/helm`, args);
}

/** The arguments of {@link helm} that name chart and values. */
export function valuesOf({ example, set = [] }: Rendering): string[] {
  const values = ["--values", `deploy/helm/examples/${example}.yaml`];
  return [CHART, ...values, ...set.flatMap((each) => ["--set", each])];
}

/** Renders the chart as `helm install gateway` would send it. */
export async function render(rendering: Rendering): Promise<string> {
  const { version = "1.36" } = rendering;
  const values = valuesOf(rendering);
  const where = ["--namespace", "gateway", "--kube-version", version];
  return await helm("template", "gateway", ...values, ...where);
}

/** The documents of a YAML text. */
export async function readYaml(yaml: string): Promise<unknown[]> {
  const script = "import sys, json, yaml\n" +
    "documents = yaml.safe_load_all(open(sys.argv[1]))\n" +
    "print(json.dumps([each for each in documents if each]))";
  const json = await withFile(
    yaml,
    (file) => runProcess(PYTHON, ["-c", script, file]),
  );
  return z.array(z.unknown()).parse(JSON.parse(json));
}

/** The objects of a rendered chart. */
export async function objectsIn(yaml: string): Promise<KubernetesObject[]> {
  return z.array(objectSchema).parse(await readYaml(yaml));
}

/** Validates objects of Kubernetes itself; throws with the first fault. */
export async function validate(
  objects: readonly KubernetesObject[],
  version: string,
): Promise<void> {
  const script = "import sys, json, kubernetes_validate\n" +
    "for each in json.load(open(sys.argv[1])):\n" +
    "  kubernetes_validate.validate(each, sys.argv[2], strict=True)";
  await withFile(
    JSON.stringify(objects),
    (file) => runProcess(PYTHON, ["-c", script, file, version]),
  );
}

async function withFile<Result>(
  text: string,
  use: (file: string) => Promise<Result>,
): Promise<Result> {
  const file = await Deno.makeTempFile({ prefix: "gateway_chart_" });
  try {
    await Deno.writeTextFile(file, text);
    return await use(file);
  } finally {
    await Deno.remove(file);
  }
}
