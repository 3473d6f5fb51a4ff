/** One real node: containerd, kubelet and kube-proxy. */
import { canRun, runProcess } from "../../support/process.ts";
import { waitFor } from "../../support/wait_for.ts";
import {
  type ControlPlane,
  SERVER_ADDRESS,
  SERVICE_NETWORK,
} from "./control_plane.ts";
import { PAUSE } from "./images.ts";
import { NETWORK_PLUGINS } from "./install.ts";
import { DOMAIN } from "./names.ts";

/** What the only node is called. */
export const NODE_NAME = "node-1";
const POD_NETWORK = "10.244.0.0/16";
/** Its sockets: those of the machine are hidden, see {@link HIDDEN}. */
const CONTAINERD = "/run/containerd/containerd.sock";
/** Folders that programs of a node share by name: here they are empty and private. */
const HIDDEN = ["/run", "/var/lib", "/var/log"];
/**
 * What all containers have of the processor together; 1,024 is as much as one other
 * process of the machine has.
 */
const SHARES = 8 * 1_024;
/** Where control groups are, if they are of version 1. */
const GROUPS = "/sys/fs/cgroup/cpu";
const READY_MS = 120_000;
const POLL_MS = 200;

/**
 * Starts a node in the namespaces of this process, with the images of an archive and
 * a volume of 8 GiB.
 */
export async function addNode(
  cluster: ControlPlane,
  images: string,
): Promise<void> {
  for (const folder of HIDDEN) {
    await runProcess("mount", [
      "-t",
      "tmpfs",
      "-o",
      "mode=755",
      "tmpfs",
      folder,
    ]);
  }
  await startRuntime(cluster, images);
  await routeServices();
  const { folder, kubeconfig } = cluster;
  const config = `${folder}/kubelet.json`;
  await Deno.writeTextFile(`${folder}/resolv.conf`, "");
  await Deno.writeTextFile(config, JSON.stringify(kubeletConfig(folder)));
  const node = [
    `--kubeconfig=${kubeconfig}`,
    `--hostname-override=${NODE_NAME}`,
  ];
  const address = `--node-ip=${SERVER_ADDRESS}`;
  const kubelet = cluster.start("kubelet", [
    ...node,
    address,
    `--config=${config}`,
  ]);
  cluster.start("kube-proxy", [...node, ...PROXY_ARGS]);
  await addVolume(cluster, { name: "volume", storage: "8Gi" });
  const isReady = async () => {
    if (!kubelet.isRunning) throw new Error(kubelet.output());
    const template = '{.items[*].status.conditions[?(@.type=="Ready")].status}';
    const path = `-o=jsonpath=${template}`;
    return await cluster.commands.kubectl("get", "nodes", path) === "True";
  };
  await waitFor(isReady, {
    what: () => `the node:\n${kubelet.output()}`,
    timeoutMs: READY_MS,
    intervalMs: POLL_MS,
  });
}

/** Adds a folder of the node, for the first pod that wants a volume of its size. */
export async function addVolume(
  { commands, folder }: ControlPlane,
  { name, storage }: { name: string; storage: string },
): Promise<void> {
  const path = `${folder}/${name}`;
  await Deno.mkdir(path);
  const volume = {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: { name },
    spec: {
      capacity: { storage },
      accessModes: ["ReadWriteOnce"],
      local: { path },
      nodeAffinity: {
        required: {
          nodeSelectorTerms: [{
            matchExpressions: [{
              key: "kubernetes.io/hostname",
              operator: "In",
              values: [NODE_NAME],
            }],
          }],
        },
      },
    },
  };
  await commands.send(JSON.stringify(volume), "create");
}

/** Gives an image of the node one more name, by which pods ask for it. */
export async function nameImage(image: string, name: string): Promise<void> {
  await ctr("images", "tag", `docker.io/${image}`, name);
}

/** Runs `ctr`, which asks containerd. */
const ctr = (...args: string[]): Promise<string> =>
  runProcess("ctr", [
    "--address",
    CONTAINERD,
    "--namespace",
    "k8s.io",
    ...args,
  ]);

/** Starts containerd and gives it the images. */
async function startRuntime(
  { folder, startOther }: ControlPlane,
  images: string,
): Promise<void> {
  const config = `${folder}/containerd.toml`;
  await Deno.writeTextFile(config, runtimeConfig(folder));
  await Deno.mkdir(`${folder}/network`);
  await Deno.writeTextFile(
    `${folder}/network/pods.conflist`,
    JSON.stringify(networkConfig(folder)),
  );
  const log = `${folder}/containerd.log`;
  // A file, because the processes that it leaves for its containers would keep a pipe
  // open.
  const script = 'exec containerd --config "$0" > "$1" 2>&1';
  const runtime = startOther("sh", ["-c", script, config, log]);
  const hasStarted = async () => {
    if (!runtime.isRunning) throw new Error(await Deno.readTextFile(log));
    return await ctr("images", "list").then(() => true, () => false);
  };
  await waitFor(hasStarted, {
    what: `containerd, whose log is ${log}`,
    timeoutMs: READY_MS,
    intervalMs: POLL_MS,
  });
  await ctr("images", "import", images);
  if (!await canRun("test", "-f", `${GROUPS}/cpu.shares`)) return;
  await Deno.mkdir(`${GROUPS}/k8s.io`, { recursive: true });
  await Deno.writeTextFile(`${GROUPS}/k8s.io/cpu.shares`, String(SHARES));
}

/** Lets this process reach services: their addresses are rewritten on the way out. */
async function routeServices(): Promise<void> {
  await Deno.writeTextFile("/proc/sys/net/ipv4/ip_forward", "1");
  await runProcess("ip", [
    "route",
    "add",
    SERVICE_NETWORK,
    "dev",
    "lo",
    "src",
    SERVER_ADDRESS,
  ]);
}

const runtimeConfig = (folder: string) =>
  `version = 2
root = "${folder}/containerd"
state = "/run/containerd"
[grpc]
address = "${CONTAINERD}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/${PAUSE}"
# In a container, root may not make a process less likely to be killed.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "${NETWORK_PLUGINS}"
conf_dir = "${folder}/network"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
`;

/** Each pod has a link of its own to the node, which routes between them. */
const networkConfig = (folder: string) => ({
  cniVersion: "1.0.0",
  name: "pods",
  plugins: [{
    type: "ptp",
    ipam: {
      type: "host-local",
      dataDir: `${folder}/addresses`,
      ranges: [[{ subnet: POD_NETWORK }]],
      routes: [{ dst: "0.0.0.0/0" }],
    },
  }],
});

const kubeletConfig = (folder: string) => ({
  apiVersion: "kubelet.config.k8s.io/v1beta1",
  kind: "KubeletConfiguration",
  address: SERVER_ADDRESS,
  // Only this process and the API server can reach it.
  authentication: {
    anonymous: { enabled: true },
    webhook: { enabled: false },
  },
  authorization: { mode: "AlwaysAllow" },
  containerRuntimeEndpoint: `unix://${CONTAINERD}`,
  clusterDomain: DOMAIN,
  clusterDNS: [SERVER_ADDRESS],
  resolvConf: `${folder}/resolv.conf`,
  // The machine may have the old or the new kind of control groups.
  failCgroupV1: false,
  cgroupDriver: "cgroupfs",
  cgroupsPerQOS: false,
  enforceNodeAllocatable: [],
  failSwapOn: false,
  // The disk of the machine is not that of the node.
  localStorageCapacityIsolation: false,
  evictionHard: { "nodefs.available": "0%", "imagefs.available": "0%" },
  imageGCHighThresholdPercent: 100,
  syncFrequency: "2s",
});

const PROXY_ARGS = [
  "--proxy-mode=iptables",
  `--cluster-cidr=${POD_NETWORK}`,
  // Bounds of the machine, which are not ours.
  "--conntrack-max-per-core=0",
  "--conntrack-tcp-timeout-established=0",
  "--conntrack-tcp-timeout-close-wait=0",
];
