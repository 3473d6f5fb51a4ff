// Promise: with the rules of deploy/helm/beside, prometheus-adapter serves the load of
// workers to the HPA of the chart, which starts as many pods as running and waiting
// requests need. Prometheus and the API server are real, the nodes are simulated. Run
// by `deno task test:kubernetes`.
import assert from "node:assert/strict";
import { z } from "zod";
import {
  type ControlPlane,
  SERVER_ADDRESS,
  startControlPlane,
} from "./cluster/control_plane.ts";
import {
  createNamespace,
  type Namespace,
  RELEASE,
} from "./cluster/namespace.ts";
import { addSimulatedNodes } from "./cluster/simulated_nodes.ts";
import { readYaml } from "./rendering/rendered_chart.ts";
import { readSource } from "../support/repository/source_files.ts";

const PROMETHEUS_PORT = 9_090;
const ADAPTER_PORT = 6_444;
/** 65 % of the slots of a worker, of which the chart lets each run so many. */
const PER_WORKER = 665;
const WORKERS = `deployment/${RELEASE}-chat-worker`;
const API = "v1beta1.external.metrics.k8s.io";

const rulesSchema = z.tuple([z.strictObject({
  rules: z.strictObject({ external: z.array(z.looseObject({})) }),
})]);

/** What services tell Prometheus, which a test changes. */
interface Load {
  running: number;
  waiting: number;
}

/** Serves the metrics of a worker and of an edge. */
function serveMetrics(load: Load) {
  const server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {} },
    ({ url }) =>
      new Response(
        new URL(url).pathname === "/worker"
          ? `gateway_worker_in_flight ${load.running}\n`
          : `gateway_queue_waiting{family="chat",model="m"} ${load.waiting}\n`,
      ),
  );
  return {
    address: `127.0.0.1:${server.addr.port}`,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

/** Starts Prometheus, which asks both each second. */
async function startPrometheus(
  { folder, startOther }: ControlPlane,
  { name }: Namespace,
  address: string,
): Promise<void> {
  const job = (service: string, path: string) => ({
    job_name: service,
    metrics_path: path,
    static_configs: [{
      targets: [address],
      labels: { namespace: name, pod: `${RELEASE}-${service}-0` },
    }],
  });
  const config = {
    global: { scrape_interval: "1s" },
    scrape_configs: [
      job("chat-worker", "/worker"),
      job("edge-auth", "/edge"),
    ],
  };
  const file = `${folder}/prometheus.json`;
  await Deno.writeTextFile(file, JSON.stringify(config));
  startOther("prometheus", [
    `--config.file=${file}`,
    `--storage.tsdb.path=${folder}/prometheus`,
    `--web.listen-address=127.0.0.1:${PROMETHEUS_PORT}`,
  ]);
}

/** Starts the adapter with our rules, and lets the API server serve what it serves. */
async function startAdapter(
  { commands, folder, kubeconfig, start }: ControlPlane,
  namespace: Namespace,
): Promise<void> {
  const text = readSource("deploy/helm/beside/prometheus-adapter.yaml");
  const [{ rules }] = rulesSchema.parse(await readYaml(text));
  const file = `${folder}/adapter.json`;
  // As its chart writes them down.
  await Deno.writeTextFile(
    file,
    JSON.stringify({ externalRules: rules.external }),
  );
  start("adapter", [
    `--config=${file}`,
    `--prometheus-url=http://127.0.0.1:${PROMETHEUS_PORT}`,
    "--metrics-relist-interval=2s",
    `--secure-port=${ADAPTER_PORT}`,
    `--cert-dir=${folder}/adapter`,
    `--lister-kubeconfig=${kubeconfig}`,
    `--authentication-kubeconfig=${kubeconfig}`,
    `--authorization-kubeconfig=${kubeconfig}`,
  ]);
  await registerAdapter(namespace);
  const path = `/apis/external.metrics.k8s.io/v1beta1/namespaces/` +
    `${namespace.name}/gateway_chat_load`;
  await namespace.wait(
    "the metric",
    () =>
      commands.kubectl("get", "--raw", path).then(
        (json) => json.includes('"metricName":"gateway_chat_load"'),
        () => false,
      ),
  );
}

/** Lets the API server ask the adapter, as the objects of its chart do. */
async function registerAdapter(namespace: Namespace): Promise<void> {
  const metadata = { name: "adapter" };
  const ports = [{ port: 443, targetPort: ADAPTER_PORT, name: "https" }];
  const objects = [
    { apiVersion: "v1", kind: "Service", metadata, spec: { ports } },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: {
        ...metadata,
        labels: { "kubernetes.io/service-name": "adapter" },
      },
      addressType: "IPv4",
      ports: [{ name: "https", port: ADAPTER_PORT }],
      endpoints: [{ addresses: [SERVER_ADDRESS], conditions: { ready: true } }],
    },
    {
      apiVersion: "apiregistration.k8s.io/v1",
      kind: "APIService",
      metadata: { name: API },
      spec: {
        service: { name: "adapter", namespace: namespace.name },
        group: "external.metrics.k8s.io",
        version: "v1beta1",
        insecureSkipTLSVerify: true,
        groupPriorityMinimum: 100,
        versionPriority: 100,
      },
    },
  ];
  for (const each of objects) {
    await namespace.send(JSON.stringify(each), "create");
  }
}

Deno.test("an HPA of workers follows running and waiting requests", async () => {
  const load = { running: PER_WORKER, waiting: 0 };
  await using metrics = serveMetrics(load);
  await using cluster = await startControlPlane();
  await addSimulatedNodes(cluster);
  const namespace = await createNamespace(cluster, "managed");
  await startPrometheus(cluster, namespace, metrics.address);
  await startAdapter(cluster, namespace);
  await namespace.deploy("install", { example: "managed" });
  const replicas = async () =>
    Number(await namespace.field(WORKERS, "{.spec.replicas}"));
  await namespace.wait("the fewest", async () => await replicas() === 2);
  load.running = 3 * PER_WORKER;
  await namespace.wait("a third", async () => await replicas() === 3);
  load.waiting = 2 * PER_WORKER;
  await namespace.wait(
    "two for those that wait",
    async () => await replicas() === 5,
  );
  load.waiting = 20 * PER_WORKER;
  await namespace.wait("no more than 8", async () => await replicas() === 8);
  const hpa = `horizontalpodautoscaler/${RELEASE}-chat-worker`;
  const path = '{.status.conditions[?(@.type=="ScalingActive")].status}';
  assert.equal(await namespace.field(hpa, path), "True");
});
