/** Nodes on which pods only seem to run: kwok says of each that it is ready. */
import { waitFor } from "../../support/wait_for.ts";
import type { ControlPlane } from "./control_plane.ts";
import { STAGES } from "./install.ts";

const READY_MS = 60_000;
const POLL_MS = 200;

/** Names of {@link addSimulatedNodes}. */
export const NODES = ["node-1", "node-2", "node-3"];
/**
 * Two share a zone, of which one is so large that a scheduler without rules would put
 * most pods there.
 */
const ZONES = ["zone-1", "zone-1", "zone-2"];
const CORES = ["128", "16", "16"];

/** Adds the nodes, and a volume that a pod of any of them can have. */
export async function addSimulatedNodes(cluster: ControlPlane): Promise<void> {
  const stages = await Array.fromAsync(Deno.readDir(STAGES));
  cluster.start("kwok", [
    `--kubeconfig=${cluster.kubeconfig}`,
    "--manage-all-nodes=true",
    ...stages.map(({ name }) => `--config=${STAGES}/${name}`),
  ]);
  const { commands } = cluster;
  for (const index of NODES.keys()) {
    await commands.send(JSON.stringify(nodeAt(index)), "create");
  }
  await commands.send(JSON.stringify(VOLUME), "create");
  await waitFor(() => hasNodes(cluster), {
    what: "nodes that are ready",
    timeoutMs: READY_MS,
    intervalMs: POLL_MS,
  });
}

function nodeAt(index: number) {
  const resources = { cpu: CORES[index], memory: "64Gi", pods: "110" };
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name: NODES[index],
      labels: {
        "kubernetes.io/hostname": NODES[index],
        "topology.kubernetes.io/zone": ZONES[index],
      },
    },
    status: { allocatable: resources, capacity: resources },
  };
}

const VOLUME = {
  apiVersion: "v1",
  kind: "PersistentVolume",
  metadata: { name: "volume" },
  spec: {
    capacity: { storage: "8Gi" },
    accessModes: ["ReadWriteOnce"],
    hostPath: { path: "/nowhere" },
  },
};

async function hasNodes({ commands }: ControlPlane): Promise<boolean> {
  const template =
    '{.items[*].status.conditions[?(@.type=="Ready")].status}{.items[*].spec.taints}';
  const out = await commands.kubectl("get", "nodes", `-o=jsonpath=${template}`);
  return out === NODES.map(() => "True").join(" ");
}
