// Promise: on a real node, with the images of this commit, the trial serves a stream
// through its Service as NOTES.txt says, is replaced under load without losing a
// request, outlives its stores, and its NetworkPolicies, enforced, leave open what it
// needs alone. Run by `deno task test:kubernetes`.
import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import { VERSION } from "@gateway/shared/version";
import { print } from "../support/process.ts";
import {
  type ControlPlane,
  startControlPlane,
} from "./cluster/control_plane.ts";
import { chat, isWhole, Load, MODEL, type Target } from "./cluster/load.ts";
import { createNamespace, Namespace, RELEASE } from "./cluster/namespace.ts";
import { serveNames } from "./cluster/names.ts";
import { addNode } from "./cluster/node.ts";
import {
  firstKey,
  listOf,
  LOCAL_IMAGES,
  smallRequests,
  waitForAnswer,
} from "./cluster/release.ts";
import { enforcePolicies } from "./cluster/policies.ts";
import { addStranger, waysOf } from "./cluster/ways.ts";

const REQUESTS = 2_000;
const TURNS = 12;
/** How many of them may be late, on a machine that also starts pods. */
const LATE_MAX = 100;
/** Liveness would give up after six looks, one in ten seconds. */
const OUTAGE_MS = 75_000;
const EDGES = 2;
const SERVICES = [
  "edge-auth",
  "chat-worker",
  "media-worker",
  "key-admin",
  "model-simulator",
  "nats",
  "redis",
];
/** Two of what is replaced, on the images of this commit. */
const SETTINGS = [
  ...LOCAL_IMAGES,
  "nats.image=gateway-local/nats:local",
  "redis.image=gateway-local/redis:local",
  `edge.replicas=${EDGES}`,
  "chatWorker.replicas=2",
  ...smallRequests("nats", "redis"),
];
/** What the ConfigMap of models is called. */
const MODELS = "gateway-models";
const TRIAL = { example: "trial", set: SETTINGS };

/** Sets which pods may read metrics: none that is here. */
const MONITORING = "networkPolicy.monitoring[0].podSelector.matchLabels.app";
/**
 * What each can reach. Workers call model servers anywhere, so the API, too; and
 * kube-router never closes the way from a pod to another one of the same policy.
 */
const WAYS = {
  "edge-auth": ["api", "nats", "redis"],
  "chat-worker": ["api", "nats"],
  "media-worker": ["api", "nats"],
  "key-admin": ["api", "nats", "redis"],
  "stranger": ["api"],
};

/** What the steps work with; the first ones fill it. */
interface Subject {
  readonly cluster: ControlPlane;
  readonly namespace: Namespace;
  target: Target;
}

/** The upgrade with more settings. */
const upgrade = (namespace: Namespace, ...set: string[]) =>
  namespace.deploy("upgrade", { ...TRIAL, set: [...SETTINGS, ...set] });

/** How often containers of a release were started again. */
async function restarts(namespace: Namespace): Promise<number> {
  const pods = await Promise.all(SERVICES.map((each) => namespace.pods(each)));
  return pods.flat().flatMap(({ status }) => status.containerStatuses)
    .reduce((sum, { restartCount }) => sum + restartCount, 0);
}

async function install(subject: Subject): Promise<void> {
  const { namespace } = subject;
  await namespace.deploy("install", TRIAL);
  assert.equal(await restarts(namespace), 0);
  const deployment = `deployment/${RELEASE}-key-admin`;
  subject.target = await firstKey(namespace);
  const version = ["exec", deployment, "--", "gateway", "--version"];
  // And the commit, which the console shows, too.
  const output = await namespace.kubectl(...version);
  assert.ok(output.startsWith(`gateway ${VERSION}+`), output);
  const log = await namespace.kubectl("logs", deployment);
  assert.match(log, /setup_link/);
}

async function changeModels(subject: Subject): Promise<void> {
  const { namespace, target } = subject;
  const literal = `--from-literal=models.json=${listOf(MODEL)}`;
  await namespace.kubectl("create", "configmap", MODELS, literal);
  await upgrade(namespace, `models.existingConfigMap=${MODELS}`);
  await waitForAnswer(subject);
  const podsOf = async () =>
    (await Promise.all(SERVICES.map((each) => namespace.podNames(each))))
      .flat();
  const before = await podsOf();
  const data = { "models.json": listOf(MODEL, "another") };
  const patch = JSON.stringify({ data });
  await namespace.kubectl("patch", "configmap", MODELS, `--patch=${patch}`);
  await namespace.wait("the new model", async () => {
    const answer = await chat({ ...target, model: "another" }, {
      stream: false,
    });
    // An edge may know of it before a worker does.
    const { status, text, retryAfter } = answer;
    const isLater = status === 404 || (status === 503 && retryAfter !== null);
    assert.ok(isWhole(answer) || isLater, `${status} ${text}`);
    return isWhole(answer);
  });
  // Those that the upgrade has replaced may be stopping.
  const after = await podsOf();
  assert.ok(after.every((name) => before.includes(name)), `${after}`);
  assert.equal(await restarts(namespace), 0);
}

async function stream(subject: Subject): Promise<void> {
  await waitForAnswer(subject);
  const { target } = subject;
  const refused = await chat({ ...target, key: "sk-none" }, { stream: true });
  assert.equal(refused.status, 401);
}

async function helmTest({ namespace, target }: Subject): Promise<void> {
  const name = `${RELEASE}-test`;
  const literal = `--from-literal=key=${target.key}`;
  await namespace.kubectl("create", "secret", "generic", name, literal);
  await upgrade(namespace, `tests.existingSecret=${name}`);
  const report = await namespace.helm("test", "gateway");
  assert.match(report, /Phase:\s+Succeeded/);
}

async function closeWays(subject: Subject): Promise<void> {
  const { namespace } = subject;
  await upgrade(namespace, `${MONITORING}=prometheus`);
  await using _stranger = await addStranger(namespace);
  const services = Object.keys(WAYS).filter((each) => each !== "stranger");
  let found = {};
  const isRight = async () => {
    found = await waysOf(namespace, services);
    return isDeepStrictEqual(found, WAYS);
  };
  // Policies follow a new pod within seconds.
  await namespace.wait("the ways of pods", isRight).catch(() =>
    assert.deepEqual(found, WAYS)
  );
  await waitForAnswer(subject);
}

async function replace({ namespace, target }: Subject): Promise<void> {
  const replaced = ["edge-auth", "chat-worker"];
  const podsOf = async () =>
    (await Promise.all(replaced.map((each) => namespace.podNames(each))))
      .flat();
  const before = await podsOf();
  const load = new Load(target, TURNS);
  try {
    await load.reach(TURNS);
    const louder = ["edge", "chatWorker"].map((each) =>
      `${each}.env.LOG_LEVEL=debug`
    );
    await upgrade(namespace, ...louder);
    await namespace.wait("new pods only", async () => {
      const after = await podsOf();
      return after.every((name) => !before.includes(name));
    });
    await load.reach(REQUESTS);
  } finally {
    await load.stop();
  }
  const { whole, late, lost } = load;
  print(`    ${whole} answers, ${late} sent again, ${lost.length} lost`);
  assert.deepEqual(lost, []);
  assert.ok(late <= LATE_MAX, `${late} of ${whole} were refused first`);
}

async function failUpgrade(subject: Subject): Promise<void> {
  const { namespace } = subject;
  // Those of the upgrade before this one may be stopping.
  await namespace.wait(
    "edges that stay",
    async () => (await namespace.podNames("edge-auth")).length === EDGES,
  );
  const before = await namespace.podNames("edge-auth");
  const set = [...SETTINGS, "image.tag=none", "image.pullPolicy=Never"];
  const seconds = ["--timeout", "10s"];
  await assert.rejects(namespace.deploy("upgrade", { ...TRIAL, set }, seconds));
  const now = await namespace.podNames("edge-auth");
  assert.ok(before.every((name) => now.includes(name)), `${now}`);
  await waitForAnswer(subject);
  const revisions = await namespace.history();
  await namespace.rollback(revisions.length - 1);
  assert.equal((await namespace.history()).at(-1), "deployed");
}

async function loseStores(subject: Subject): Promise<void> {
  const { namespace, target } = subject;
  const before = await restarts(namespace);
  const stores = ["nats", "redis"].map((store) =>
    `statefulset/${RELEASE}-${store}`
  );
  await namespace.kubectl("scale", ...stores, "--replicas=0");
  const isRefused = async () => {
    const { status, retryAfter } = await chat(target, { stream: false });
    return status === 503 && retryAfter !== null;
  };
  await namespace.wait("a refusal", isRefused);
  const endsAtMs = performance.now() + OUTAGE_MS;
  while (performance.now() < endsAtMs) {
    assert.ok(await isRefused());
    assert.equal(await namespace.available("edge-auth"), EDGES);
    assert.equal(await restarts(namespace), before);
  }
  await namespace.kubectl("scale", ...stores, "--replicas=1");
  await waitForAnswer(subject);
  assert.equal(await restarts(namespace), before);
}

async function remove({ namespace }: Subject): Promise<void> {
  await namespace.helm("uninstall", "gateway", "--wait");
  await namespace.wait(
    "no pod",
    async () => await namespace.kubectl("get", "pods", "-o", "name") === "",
  );
}

/** In this order: each needs what the ones before have left. */
const STEPS = {
  "installs, and gives the first key and the link to the console": install,
  "serves a stream through its Service": stream,
  "passes `helm test`": helmTest,
  "reads a changed ConfigMap of models, and restarts nothing": changeModels,
  "lets each pod reach what it needs, and nothing else": closeWays,
  "goes on serving when an upgrade has no image": failUpgrade,
  "answers 503 without its stores, restarts nothing, and knows its keys after":
    loseStores,
  "loses no request while edges and workers are replaced": replace,
  "goes away in the time that its pods have": remove,
} as const;

Deno.test("the trial on a real node", async (t) => {
  const images = Deno.env.get("CLUSTER_IMAGES");
  assert.ok(
    images,
    "CLUSTER_IMAGES: an archive with the images of this commit",
  );
  await using cluster = await startControlPlane();
  await addNode(cluster, images);
  enforcePolicies(cluster);
  await using _names = await serveNames(cluster);
  const namespace = await createNamespace(cluster, "trial");
  const subject = { cluster, namespace, target: { url: "", key: "" } };
  for (const [title, step] of Object.entries(STEPS)) {
    const isDone = await t.step(`it ${title}`, () => step(subject));
    if (!isDone) return;
  }
});
