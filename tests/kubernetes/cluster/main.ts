/**
 * Runs tests of a cluster in namespaces of their own: nothing that they start reaches
 * another machine, for there is no way out, and all of it ends with them.
 *
 *   deno run --allow-all tests/kubernetes/cluster/main.ts FILE [options of deno test]
 *
 * Where the programs cannot be had, prints why the tests are left out.
 */
import {
  canRun,
  makeTempDir,
  print,
  runProcess,
} from "../../support/process.ts";
import { installTools } from "../rendering/rendered_chart.ts";
import { takeCharts } from "../rendering/store_charts.ts";
import { buildImages } from "./images.ts";
import {
  installAdapter,
  installControlPlane,
  installNode,
  installStores,
} from "./install.ts";

const NAMESPACES = [
  "--net",
  "--pid",
  "--mount",
  "--fork",
  "--kill-child",
  "--mount-proc",
];
/** A program and arguments with which it does nothing. */
const NEEDED = [["go", "version"], ["openssl", "version"]] as const;
/** The file that needs the charts of NATS and Valkey, too. */
const BESIDE_CHARTS = "tests/kubernetes/store_pods.ts";
/** The file that needs what serves metrics to autoscalers, and what that needs. */
const WITH_ADAPTER = "tests/kubernetes/metrics_adapter.ts";
const NEEDED_WITH_ADAPTER = [["prometheus", "--version"]] as const;
/** How the reason begins if those cannot be had. */
const NO_CHARTS = "the charts of NATS and Valkey";
/** Files that need a node with the images of this commit, and what that needs. */
const ON_NODE: ReadonlySet<string> = new Set([
  "tests/kubernetes/real_node.ts",
  BESIDE_CHARTS,
]);
const NEEDED_ON_NODE = [
  ["docker", "--version"],
  ["containerd", "--version"],
  ["iptables", "--version"],
  ["ipset", "version"],
  ["debootstrap", "--version"],
] as const;

/** Those that have processes stay, since they are others'. */
const REMOVE_GROUPS = "find /sys/fs/cgroup -depth -type d -path '*/k8s.io*' " +
  "-exec rmdir {} + 2>/dev/null || true";

Deno.exit(await main(Deno.args));

async function main([file = "", ...options]: readonly string[]) {
  await using folder = await makeTempDir();
  const images = `${folder.path}/images.tar`;
  const reason = await whyNot(file) ?? await prepare(file, images);
  if (reason === undefined) return await runAlone([file, ...options], images);
  const line = `Left out: ${file}: ${reason}`;
  // CI itself must have every program, but may reach nobody's charts.
  const isAllowed = reason.startsWith(NO_CHARTS) || !Deno.env.has("CI");
  if (!isAllowed) throw new Error(line);
  print(line);
  return 0;
}

/** Why a cluster cannot run here, if it cannot. */
async function whyNot(file: string): Promise<string | undefined> {
  if (
    !await canRun("unshare", ...NAMESPACES, "ip", "link", "set", "lo", "up")
  ) {
    return "namespaces cannot be made here: that needs Linux and root";
  }
  const needed = [
    ...NEEDED,
    ...ON_NODE.has(file) ? NEEDED_ON_NODE : [],
    ...file === WITH_ADAPTER ? NEEDED_WITH_ADAPTER : [],
  ];
  for (const [program, argument] of needed) {
    if (!await canRun(program, argument)) return `${program} is missing`;
  }
}

/** Builds what is missing; returns why that failed, if it did. */
async function prepare(file: string, images: string) {
  try {
    await installTools();
    await installControlPlane();
    if (file === WITH_ADAPTER) await installAdapter();
    if (!ON_NODE.has(file)) return;
    await installNode();
    const hasCharts = file === BESIDE_CHARTS;
    if (hasCharts) {
      const charts = await takeCharts();
      if (typeof charts === "string") return `${NO_CHARTS}: ${charts}`;
      await installStores();
    }
    await buildImages(images, { hasCharts });
  } catch (error) {
    return `what it needs cannot be built: ${error}`;
  }
}

async function runAlone(args: readonly string[], images: string) {
  const test = [Deno.execPath(), "test", "--no-check", "-P", ...args];
  const { code } = await new Deno.Command("unshare", {
    args: [...NAMESPACES, ...test],
    env: { CLUSTER_IMAGES: images },
    stdin: "null",
  }).spawn().status;
  // Control groups are in no namespace: those of containers that were killed remain.
  await runProcess("sh", ["-c", REMOVE_GROUPS]);
  return code;
}
