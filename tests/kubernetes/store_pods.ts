// Promise: the example for production runs beside the charts of NATS and Valkey as
// their projects make them, with the values of deploy/helm/beside: three servers keep
// answers, policies let in the gateway alone, and no request is lost while the servers
// of NATS are replaced. Run by `deno task test:kubernetes`.
import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { print } from "../support/process.ts";
import {
  type ControlPlane,
  startControlPlane,
} from "./cluster/control_plane.ts";
import { STORES_OF_CHARTS } from "./cluster/images.ts";
import { Load, MODEL, type Target } from "./cluster/load.ts";
import {
  createNamespace,
  type Namespace,
  secretsOf,
} from "./cluster/namespace.ts";
import { serveNames } from "./cluster/names.ts";
import { addNode, addVolume, nameImage } from "./cluster/node.ts";
import { defineOperators } from "./cluster/operators.ts";
import { enforcePolicies } from "./cluster/policies.ts";
import {
  firstKey,
  listOf,
  LOCAL_IMAGES,
  smallRequests,
  waitForAnswer,
} from "./cluster/release.ts";
import { addStranger, waysOf } from "./cluster/ways.ts";
import {
  renderStores,
  STORE_VALUES,
  type StoreCharts,
  takeCharts,
} from "./rendering/store_charts.ts";

const TURNS = 8;
/** How many requests may be late: their worker or edge looks for another server. */
const LATE_MAX = 200;
const NATS_SERVERS = 3;
const STORE_WAIT = ["--wait", "--timeout", "300s"];
/** The servers' own numbers, on a port that the policies of the charts close. */
const MONITOR_PORT = 8222;
const PRODUCTION = {
  example: "production",
  set: [...LOCAL_IMAGES, "simulator.enabled=true", ...smallRequests()],
};
/** What each can reach: clients are in another namespace, but for the console. */
const WAYS = {
  "edge-auth": ["nats", "redis"],
  "chat-worker": ["nats"],
  "media-worker": ["nats"],
  "key-admin": ["api", "nats", "redis"],
  "stranger": [],
};
const clusterSchema = z.object({
  meta_cluster: z.object({ cluster_size: z.number() }),
});

/** What the steps work with; the first ones fill it. */
interface Subject {
  readonly cluster: ControlPlane;
  readonly namespace: Namespace;
  readonly charts: StoreCharts;
  target: Target;
}

/** Gives the node what the charts name, and a volume to each of their pods. */
async function prepareStores({ cluster, charts }: Subject): Promise<void> {
  const rendered = JSON.stringify(await renderStores(charts, "1.36"));
  const images = new Set(
    rendered.matchAll(/"image":"([^"]+)"/g)
      .map(([, image = ""]) => image),
  );
  for (const image of images) {
    const name = image.replace(/^docker\.io\//, "");
    const [repository = ""] = name.split(":");
    const [, standIn = assert.fail(image)] =
      Object.entries(STORES_OF_CHARTS).find(([each]) => each === repository) ??
        [];
    const path = name.includes("/") ? name : `library/${name}`;
    await nameImage(standIn, `docker.io/${path}`);
  }
  for (let index = 0; index < NATS_SERVERS; index += 1) {
    await addVolume(cluster, { name: `nats-${index}`, storage: "1Gi" });
  }
}

async function installStores(subject: Subject): Promise<void> {
  const { cluster, namespace, charts } = subject;
  await prepareStores(subject);
  const make = (...args: string[]) => namespace.kubectl("create", ...args);
  await make("configmap", "gateway-nats", "--from-file=deploy/nats/nats.conf");
  const secrets = secretsOf(cluster.folder, namespace.name);
  const users = `--from-file=${secrets}/redis_users.acl`;
  await make("secret", "generic", "gateway-redis-users", users);
  const add = (name: keyof StoreCharts, resources: string) =>
    namespace.helm(
      "install",
      name,
      charts[name],
      ...STORE_VALUES[name],
      `--set=${resources}.requests.cpu=100m`,
      ...STORE_WAIT,
    );
  await Promise.all([
    add("nats", "container.resources"),
    add("valkey", "resources"),
  ]);
  assert.equal(await clusterSize(namespace), NATS_SERVERS);
}

/** How many servers agree upon the log of kept answers. */
async function clusterSize(namespace: Namespace): Promise<number> {
  const address = await namespace.field("pod/nats-0", "{.status.podIP}");
  const response = await fetch(`http://${address}:${MONITOR_PORT}/jsz`);
  const { meta_cluster } = clusterSchema.parse(await response.json());
  return meta_cluster.cluster_size;
}

async function installGateway(subject: Subject): Promise<void> {
  const { namespace } = subject;
  const make = (...args: string[]) => namespace.kubectl("create", ...args);
  const models = `--from-literal=models.json=${listOf(MODEL)}`;
  await make("configmap", "gateway-models", models);
  for (const name of ["gateway-model-keys", "gateway-oidc"]) {
    const entries = ["client_id", "client_secret"].map((each) =>
      `--from-literal=${each}=${each}`
    );
    await make("secret", "generic", name, ...entries);
  }
  await namespace.deploy("install", PRODUCTION);
  subject.target = await firstKey(namespace);
  await waitForAnswer(subject);
}

/** An answer is written once, and comes again from the log of the three servers. */
async function keepAnswer({ target }: Subject): Promise<void> {
  const ask = async () => {
    const response = await fetch(`${target.url}/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${target.key}`,
        "content-type": "application/json",
        "idempotency-key": "once",
      },
      body: JSON.stringify({
        model: MODEL,
        messages: [{ role: "user", content: "Say hello." }],
      }),
    });
    assert.equal(response.status, 200);
    return await response.text();
  };
  assert.equal(await ask(), await ask());
}

async function closeWays({ namespace }: Subject): Promise<void> {
  await using _stranger = await addStranger(namespace);
  const services = Object.keys(WAYS).filter((each) => each !== "stranger");
  const stores = { nats: "nats", redis: "valkey" };
  let found = {};
  const isRight = async () => {
    found = await waysOf(namespace, services, stores);
    return isDeepStrictEqual(found, WAYS);
  };
  // Policies follow a new pod within seconds.
  await namespace.wait("the ways of pods", isRight).catch(() =>
    assert.deepEqual(found, WAYS)
  );
}

async function replaceServers({ namespace, target }: Subject): Promise<void> {
  const load = new Load(target, TURNS);
  try {
    await load.reach(TURNS);
    await namespace.kubectl("rollout", "restart", "statefulset/nats");
    const before = load.whole;
    await namespace.kubectl(
      "rollout",
      "status",
      "statefulset/nats",
      "--timeout=600s",
    );
    await load.reach(before + TURNS);
  } finally {
    await load.stop();
  }
  const { whole, late, lost } = load;
  print(`    ${whole} answers, ${late} sent again, ${lost.length} lost`);
  assert.deepEqual(lost, []);
  assert.ok(late <= LATE_MAX, `${late} of ${whole} were refused first`);
  assert.equal(await clusterSize(namespace), NATS_SERVERS);
}

async function remove({ namespace }: Subject): Promise<void> {
  for (const release of ["gateway", "nats", "valkey"]) {
    await namespace.helm("uninstall", release, "--wait");
  }
  const volumes = ["get", "persistentvolumeclaims", "-o", "name"];
  assert.match(await namespace.kubectl(...volumes), /\/valkey$/m);
}

/** In this order: each needs what the ones before have left. */
const STEPS = {
  "installs NATS and Valkey by their charts": installStores,
  "installs the gateway beside them, and serves a stream": installGateway,
  "keeps an answer in the log of three servers": keepAnswer,
  "lets in the gateway alone, and workers not to Valkey": closeWays,
  "loses no request while the servers of NATS are replaced": replaceServers,
  "goes away, but for the volume with the keys": remove,
} as const;

Deno.test("production beside the charts of its stores", async (t) => {
  const images = Deno.env.get("CLUSTER_IMAGES");
  assert.ok(images, "CLUSTER_IMAGES: an archive with the images it needs");
  const charts = await takeCharts();
  assert.ok(typeof charts !== "string", `no charts: ${charts}`);
  await using cluster = await startControlPlane();
  await addNode(cluster, images);
  await defineOperators(cluster);
  enforcePolicies(cluster);
  await using _names = await serveNames(cluster);
  const namespace = await createNamespace(cluster, "gateway");
  const target = { url: "", key: "" };
  const subject = { cluster, namespace, charts, target };
  for (const [title, step] of Object.entries(STEPS)) {
    const isDone = await t.step(`it ${title}`, () => step(subject));
    if (!isDone) return;
  }
});
