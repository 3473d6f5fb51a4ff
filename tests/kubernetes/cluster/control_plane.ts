/** A real control plane: etcd, API server, controllers and scheduler. */
import { createTestAuthority } from "../../support/deployed/test_authority.ts";
import {
  makeTempDir,
  owning,
  type RunningProcess,
  runProcess,
  startProcess,
} from "../../support/process.ts";
import { waitFor } from "../../support/wait_for.ts";
import { Commands } from "./commands.ts";
import { PROGRAMS } from "./install.ts";

/**
 * Where the API server listens. A node refuses an address that means "this machine"
 * everywhere, such as 127.0.0.1.
 */
export const SERVER_ADDRESS = "192.168.77.1";
/** Addresses of services. */
export const SERVICE_NETWORK = "10.96.0.0/16";
const SERVER = `https://${SERVER_ADDRESS}:6443`;
const ETCD = "http://127.0.0.1:2379";
const TOKEN = "operator";
const READY_MS = 120_000;
const POLL_MS = 200;

/** A running control plane, without nodes. */
export interface ControlPlane extends AsyncDisposable {
  /** As `cluster-admin`. */
  readonly commands: Commands;
  /** Names the server, and whoever has it is `cluster-admin`. */
  readonly kubeconfig: string;
  /** For files that go with the cluster. */
  readonly folder: string;
  /** Starts another program that was installed for clusters, which ends with this one. */
  start(program: string, args: readonly string[]): RunningProcess;
  /** The same with a program of this machine. */
  startOther(command: string, args: readonly string[]): RunningProcess;
}

/** Starts a control plane in the network namespace of this process. */
export async function startControlPlane(): Promise<ControlPlane> {
  await using parts = new AsyncDisposableStack();
  const { path: folder } = parts.use(await makeTempDir());
  const authority = parts.use(
    await createTestAuthority(`IP:${SERVER_ADDRESS}`),
  );
  await runProcess("ip", ["link", "set", "lo", "up"]);
  await runProcess("ip", ["address", "add", SERVER_ADDRESS, "dev", "lo"]);
  const kubeconfig = await writeKubeconfig(folder, authority.caFile);
  const programs = parts.use(new AsyncDisposableStack());
  const startOther: ControlPlane["startOther"] = (command, args) =>
    programs.use(startProcess({ command, args: [...args], cwd: folder }));
  const start: ControlPlane["start"] = (program, args) =>
    startOther(`${PROGRAMS}/${program}`, args);

  start("etcd", [...ETCD_ARGS, "--data-dir", `${folder}/etcd`]);
  const tokens = `${folder}/tokens.csv`;
  await Deno.writeTextFile(tokens, `${TOKEN},operator,operator,system:masters`);
  // Any key does that only these two know.
  const { certFile, keyFile } = authority.client;
  const server = start("kube-apiserver", [
    ...SERVER_ARGS,
    `--token-auth-file=${tokens}`,
    `--cert-dir=${folder}`,
    `--tls-cert-file=${authority.server.certFile}`,
    `--tls-private-key-file=${authority.server.keyFile}`,
    `--service-account-key-file=${certFile}`,
    `--service-account-signing-key-file=${keyFile}`,
    // By which a server that serves more of the API knows this one.
    `--requestheader-client-ca-file=${authority.caFile}`,
    `--proxy-client-cert-file=${certFile}`,
    `--proxy-client-key-file=${keyFile}`,
  ]);
  const commands = new Commands(folder, kubeconfig);
  await waitFor(() => isReady(commands, server), {
    what: () => `the API server:\n${server.output()}`,
    timeoutMs: READY_MS,
    intervalMs: POLL_MS,
  });
  start("kube-controller-manager", [
    ...CONTROLLER_ARGS,
    `--kubeconfig=${kubeconfig}`,
    `--service-account-private-key-file=${keyFile}`,
  ]);
  start("kube-scheduler", [
    "--leader-elect=false",
    "--secure-port=0",
    `--kubeconfig=${kubeconfig}`,
  ]);
  return owning(parts, { commands, kubeconfig, folder, start, startOther });
}

const ETCD_ARGS = [
  "--unsafe-no-fsync",
  `--listen-client-urls=${ETCD}`,
  `--advertise-client-urls=${ETCD}`,
  "--listen-peer-urls=http://127.0.0.1:2380",
];

const SERVER_ARGS = [
  `--etcd-servers=${ETCD}`,
  `--bind-address=${SERVER_ADDRESS}`,
  `--advertise-address=${SERVER_ADDRESS}`,
  "--secure-port=6443",
  // Nothing here knows the names of nodes.
  "--kubelet-preferred-address-types=InternalIP",
  "--authorization-mode=RBAC",
  `--service-cluster-ip-range=${SERVICE_NETWORK}`,
  `--service-account-issuer=${SERVER}`,
  "--enable-aggregator-routing=true",
  "--requestheader-username-headers=X-Remote-User",
  "--requestheader-group-headers=X-Remote-Group",
  "--requestheader-extra-headers-prefix=X-Remote-Extra-",
];

const CONTROLLER_ARGS = [
  "--leader-elect=false",
  "--secure-port=0",
  "--horizontal-pod-autoscaler-sync-period=1s",
];

async function isReady(
  commands: Commands,
  server: RunningProcess,
): Promise<boolean> {
  if (!server.isRunning) throw new Error(server.output());
  return await commands.kubectl("get", "--raw", "/readyz")
    .then((text) => text === "ok", () => false);
}

/** JSON, which is YAML, too. */
async function writeKubeconfig(
  folder: string,
  authority: string,
): Promise<string> {
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{
      name: "test",
      cluster: { server: SERVER, "certificate-authority": authority },
    }],
    users: [{ name: "operator", user: { token: TOKEN } }],
    contexts: [{
      name: "test",
      context: { cluster: "test", user: "operator" },
    }],
    "current-context": "test",
  };
  const path = `${folder}/kubeconfig.json`;
  await Deno.writeTextFile(path, JSON.stringify(config));
  return path;
}
