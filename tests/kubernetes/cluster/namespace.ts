/** A namespace of a cluster with the strictest Pod Security, and a release in it. */
import { z } from "zod";
import { runProcess } from "../../support/process.ts";
import { waitFor } from "../../support/wait_for.ts";
import { type Rendering, valuesOf } from "../rendering/rendered_chart.ts";
import type { Commands } from "./commands.ts";
import type { ControlPlane } from "./control_plane.ts";

const POLL_MS = 100;
const WAIT_MS = 180_000;
const HELM_WAIT = ["--wait", "--timeout", `${WAIT_MS / 1_000}s`];
/** What the chart calls the objects of a release `gateway`. */
export const RELEASE = "gateway-chat-gateway";

const podsSchema = z.object({
  items: z.array(z.object({
    metadata: z.object({ name: z.string() }),
    spec: z.object({ nodeName: z.string().optional() }),
    status: z.object({
      podIP: z.string().optional(),
      conditions: z.array(z.object({ type: z.string(), status: z.string() }))
        .default([]),
      containerStatuses: z.array(z.object({ restartCount: z.number() }))
        .default([]),
    }),
  })),
});
/** A pod, as far as tests look at it. */
export type Pod = z.output<typeof podsSchema>["items"][number];

const historySchema = z.array(z.object({
  revision: z.number(),
  status: z.string(),
}));

/** A namespace with a release `gateway`. */
export class Namespace {
  readonly name: string;
  readonly #commands: Commands;

  constructor(name: string, commands: Commands) {
    this.name = name;
    this.#commands = commands;
  }

  /** Runs `kubectl` in this namespace. */
  kubectl(...args: string[]): Promise<string> {
    return this.#commands.kubectl("--namespace", this.name, ...args);
  }

  /** Runs `helm` in this namespace. */
  helm(...args: string[]): Promise<string> {
    return this.#commands.helm("--namespace", this.name, ...args);
  }

  /** Runs `kubectl … --filename` with a text in this namespace. */
  send(text: string, ...args: string[]) {
    return this.#commands.send(text, "--namespace", this.name, ...args);
  }

  /** Installs or upgrades the release and waits until its pods are ready. */
  deploy(
    verb: "install" | "upgrade",
    rendering: Rendering,
    more: readonly string[] = [],
  ): Promise<string> {
    const args = [...valuesOf(rendering), ...HELM_WAIT, ...more];
    return this.helm(verb, "gateway", ...args);
  }

  /** Goes back to a revision and waits until its pods are ready. */
  rollback(revision: number): Promise<string> {
    return this.helm("rollback", "gateway", String(revision), ...HELM_WAIT);
  }

  /** The status of each revision, the last one at the end. */
  async history(): Promise<string[]> {
    const json = await this.helm("history", "gateway", "--output", "json");
    return historySchema.parse(JSON.parse(json)).map(({ status }) => status);
  }

  /** The pods of a service; those that are about to stop, too. */
  async pods(service: string): Promise<Pod[]> {
    const label = `app.kubernetes.io/component=${service}`;
    const json = await this.kubectl("get", "pods", "-l", label, "-o", "json");
    return podsSchema.parse(JSON.parse(json)).items;
  }

  /** The names of {@link pods}, in order. */
  async podNames(service: string): Promise<string[]> {
    const pods = await this.pods(service);
    return pods.map(({ metadata }) => metadata.name).sort();
  }

  /** A field of an object by its JSONPath: `{.status.phase}`. */
  field(object: string, path: string): Promise<string> {
    return this.kubectl("get", object, "-o", `jsonpath=${path}`);
  }

  /** How many pods of a service may be called now. */
  async available(service: string): Promise<number> {
    const object = `deployment/${RELEASE}-${service}`;
    return Number(await this.field(object, "{.status.availableReplicas}"));
  }

  /** Waits for a condition in the cluster. */
  wait(what: string, condition: () => Promise<boolean>): Promise<boolean> {
    return waitFor(condition, {
      what: `${what} in ${this.name}`,
      timeoutMs: WAIT_MS,
      intervalMs: POLL_MS,
    });
  }
}

/** Where the files of a namespace's secrets are, in the folder of its cluster. */
export const secretsOf = (folder: string, name: string): string =>
  `${folder}/secrets-${name}`;

/** Creates a namespace with what docs/kubernetes.md wants before a release. */
export async function createNamespace(
  { commands, folder }: ControlPlane,
  name: string,
): Promise<Namespace> {
  const namespace = new Namespace(name, commands);
  await commands.kubectl("create", "namespace", name);
  await commands.kubectl(
    "label",
    "namespace",
    name,
    "pod-security.kubernetes.io/enforce=restricted",
    "pod-security.kubernetes.io/warn=restricted",
  );
  const secrets = secretsOf(folder, name);
  await runProcess("deploy/secrets.sh", [], { env: { SECRETS_DIR: secrets } });
  const file = `--from-file=${secrets}`;
  await namespace.kubectl(
    "create",
    "secret",
    "generic",
    "gateway-secrets",
    file,
  );
  return namespace;
}
