// Promise: a real API server takes what the chart makes, under the strictest Pod
// Security, and a release is installed, upgraded, refused, rolled back, evicted and
// removed without ever having fewer pods than it should. Nodes are simulated. Run by
// `deno task test:kubernetes`.
import assert from "node:assert/strict";
import { readSource } from "../support/repository/source_files.ts";
import {
  type ControlPlane,
  startControlPlane,
} from "./cluster/control_plane.ts";
import { createNamespace, Namespace, RELEASE } from "./cluster/namespace.ts";
import { defineOperators } from "./cluster/operators.ts";
import { addSimulatedNodes, NODES } from "./cluster/simulated_nodes.ts";
import { EXAMPLES, render } from "./rendering/rendered_chart.ts";

const EDGES = 3;
const PRODUCTION = { example: "production" };
const LOUDER = { ...PRODUCTION, set: ["edge.env.LOG_LEVEL=debug"] };
/** Some kinds of which the example has objects. */
const EXPECTED = [
  "deployment.apps",
  "horizontalpodautoscaler.autoscaling",
  "httproute.gateway.networking.k8s.io",
  "networkpolicy.networking.k8s.io",
  "poddisruptionbudget.policy",
  "podmonitor.monitoring.coreos.com",
  "scaledobject.keda.sh",
];
/** The kinds of all objects of a release. */
const KINDS = [
  "all",
  "configmap",
  "horizontalpodautoscaler",
  "httproute",
  "networkpolicy",
  "poddisruptionbudget",
  "podmonitor",
  "prometheusrule",
  "scaledobject",
];

/** The smallest number of edges that could be called while something was done. */
async function leastEdges(
  namespace: Namespace,
  work: Promise<unknown>,
): Promise<number> {
  let isDone = false;
  let least = Infinity;
  const watch = namespace.wait("the end of the work", async () => {
    least = Math.min(least, await namespace.available("edge-auth"));
    return isDone;
  });
  const finished = work.finally(() => {
    isDone = true;
  });
  await Promise.all([finished, watch]);
  return least;
}

/** Asks for the eviction of a pod, as `kubectl drain` does. */
async function evict(namespace: Namespace, name: string): Promise<void> {
  const eviction = { apiVersion: "policy/v1", kind: "Eviction" };
  const path = `/api/v1/namespaces/${namespace.name}/pods/${name}/eviction`;
  const body = { ...eviction, metadata: { name, namespace: namespace.name } };
  await namespace.send(JSON.stringify(body), "create", "--raw", path);
}

/** The nodes of the edges, in order. */
async function nodesOf(namespace: Namespace): Promise<string[]> {
  const pods = await namespace.pods("edge-auth");
  return pods.map(({ spec }) => spec.nodeName ?? "none").sort();
}

/** All objects of the release that the server has. */
async function objectsOf(namespace: Namespace): Promise<string[]> {
  const label = "app.kubernetes.io/instance=gateway";
  const kinds = KINDS.join(",");
  const out = await namespace.kubectl("get", kinds, "-l", label, "-o", "name");
  return out.split("\n").filter((line) => line !== "");
}

/** What the steps work with. */
interface Subject {
  readonly cluster: ControlPlane;
  /** Where nothing is installed. */
  readonly drafts: Namespace;
  /** Where the example `production` is installed. */
  readonly production: Namespace;
  /** The same for `trial`. */
  readonly trial: Namespace;
}

const STRICT = ["--dry-run=server", "--validate=strict"];

async function takeEachObject({ drafts }: Subject): Promise<void> {
  for (const example of EXAMPLES) {
    // With the pod of `helm test`, too.
    const set = ["tests.existingSecret=gateway-test"];
    const yaml = await render({ example, set });
    const { out, error } = await drafts.send(yaml, "create", ...STRICT);
    assert.match(out, /deployment\.apps\/gateway-\S+ created/);
    assert.equal(error, "", example);
  }
}

/** The policies name routes as the chart does. */
async function takePolicies({ drafts, production }: Subject): Promise<void> {
  const policies = readSource("deploy/helm/beside/envoy-gateway.yaml");
  const { out, error } = await drafts.send(policies, "create", ...STRICT);
  assert.match(out, /^backendtrafficpolicy\.gateway\.envoyproxy\.io\/gateway /);
  assert.equal(error, "");
  const routes = await production.kubectl("get", "httproutes", "-o", "name");
  const names = routes.matchAll(/\/(\S+)/g).map(([, name]) => name);
  for (const name of names) assert.ok(policies.includes(`name: ${name}\n`));
}

async function refuseWhatIsOpen({ drafts }: Subject): Promise<void> {
  await assert.rejects(
    drafts.kubectl("run", "intruder", "--image=intruder"),
    /violates PodSecurity "restricted:latest"/,
  );
}

async function refuseMistakes({ drafts }: Subject): Promise<void> {
  const yaml = await render(PRODUCTION);
  const broken = yaml.replace("maxUnavailable: 1\n", "maxUnavailabel: 1\n");
  assert.notEqual(broken, yaml);
  await assert.rejects(
    drafts.send(broken, "create", ...STRICT),
    /unknown field "spec\.maxUnavailabel"/,
  );
}

async function install({ production }: Subject): Promise<void> {
  const notes = await production.deploy("install", PRODUCTION);
  assert.match(notes, /^The gateway is installed/m);
  await production.wait(
    "the edges of the autoscaler",
    async () => await production.available("edge-auth") === EDGES,
  );
  assert.deepEqual(await nodesOf(production), NODES);
  const manifest = await production.helm("get", "manifest", "gateway");
  // Fails if one of them is not there.
  const { out } = await production.send(manifest, "get", "--output", "name");
  const kinds = new Set(out.split("\n").map((line) => line.split("/")[0]));
  for (const kind of EXPECTED) {
    assert.ok(kinds.has(kind), `${kind} is not in ${[...kinds]}`);
  }
}

async function upgrade({ production }: Subject): Promise<void> {
  const before = await production.podNames("edge-auth");
  const work = production.deploy("upgrade", LOUDER);
  assert.equal(await leastEdges(production, work), EDGES);
  await production.wait("new edges only", async () => {
    const after = await production.podNames("edge-auth");
    return after.length === EDGES &&
      after.every((name) => !before.includes(name));
  });
  assert.deepEqual(await nodesOf(production), NODES);
  assert.deepEqual(await production.history(), ["superseded", "deployed"]);
}

async function refuseUpgrade({ production }: Subject): Promise<void> {
  const before = await production.podNames("edge-auth");
  const set = ["edge.terminationGracePeriodSeconds=60"];
  await assert.rejects(
    production.deploy("upgrade", { ...PRODUCTION, set }),
    /terminationGracePeriodSeconds is 60/,
  );
  assert.deepEqual(await production.history(), ["superseded", "deployed"]);
  assert.deepEqual(await production.podNames("edge-auth"), before);
}

async function failUpgrade({ production }: Subject): Promise<void> {
  const before = await production.podNames("edge-auth");
  const set = ["edge.nodeSelector.-zone=x"];
  await assert.rejects(
    production.deploy("upgrade", { ...PRODUCTION, set }),
    /nodeSelector.*-zone/,
  );
  assert.equal((await production.history()).at(-1), "failed");
  // Helm compares with the last revision, even if that has failed: going further back
  // at once, it would not see what is to be taken away.
  await production.rollback(2);
  assert.equal((await production.history()).at(-1), "deployed");
  assert.deepEqual(await production.podNames("edge-auth"), before);
}

async function rollBack({ production }: Subject): Promise<void> {
  const object = `deployment/${RELEASE}-edge-auth`;
  const path = "{.spec.template.spec.containers[0].env}";
  assert.match(await production.field(object, path), /LOG_LEVEL/);
  const work = production.rollback(1);
  assert.equal(await leastEdges(production, work), EDGES);
  assert.doesNotMatch(await production.field(object, path), /LOG_LEVEL/);
  assert.equal((await production.history()).at(-1), "deployed");
}

async function evictOne({ cluster, production }: Subject): Promise<void> {
  const budget = `poddisruptionbudget/${RELEASE}-edge-auth`;
  const path = "{.status.disruptionsAllowed}";
  const mayGo = () =>
    production.wait(
      "the budget of edges",
      async () => await production.field(budget, path) === "1",
    );
  await mayGo();
  // So nothing takes the place of the first.
  await cluster.commands.kubectl("cordon", ...NODES);
  const [first = "", second = ""] = await production.podNames("edge-auth");
  await evict(production, first);
  await assert.rejects(
    evict(production, second),
    /would violate the pod's disruption budget/,
  );
  await cluster.commands.kubectl("uncordon", ...NODES);
  await mayGo();
  await evict(production, second);
}

async function evictBroken({ cluster, production }: Subject): Promise<void> {
  await production.wait(
    "all edges",
    async () => await production.available("edge-auth") === EDGES,
  );
  await cluster.commands.kubectl("cordon", ...NODES);
  const [first = "", second = "", third = ""] = await production.podNames(
    "edge-auth",
  );
  const broken = { conditions: [{ type: "Ready", status: "False" }] };
  const patch = ["-p", JSON.stringify({ status: broken })];
  for (const name of [first, second]) {
    await production.kubectl(
      "patch",
      "pod",
      name,
      "--subresource=status",
      ...patch,
    );
  }
  await production.wait(
    "one edge",
    async () => await production.available("edge-auth") === 1,
  );
  await assert.rejects(evict(production, third), /disruption budget/);
  await evict(production, first);
  await evict(production, second);
  await cluster.commands.kubectl("uncordon", ...NODES);
}

async function evictTheOnlyOne({ trial }: Subject): Promise<void> {
  await trial.deploy("install", { example: "trial" });
  const [only = ""] = await trial.podNames("edge-auth");
  await evict(trial, only);
  await trial.wait("another edge", async () => {
    const names = await trial.podNames("edge-auth");
    return !names.includes(only) && await trial.available("edge-auth") === 1;
  });
}

async function remove({ production, trial }: Subject): Promise<void> {
  for (const namespace of [production, trial]) {
    assert.notDeepEqual(await objectsOf(namespace), []);
    await namespace.helm("uninstall", "gateway", "--wait");
    await namespace.wait(
      "an empty namespace",
      async () => (await objectsOf(namespace)).length === 0,
    );
  }
  const claims = await trial.kubectl("get", "pvc", "--output", "name");
  assert.equal(claims, `persistentvolumeclaim/data-${RELEASE}-redis-0`);
}

/** In this order: most need the release that the ones before have left. */
const STEPS = {
  "each object of each example is taken, without a warning": takeEachObject,
  "a pod that may be root is not taken": refuseWhatIsOpen,
  "a field that does not exist is not taken": refuseMistakes,
  "an installation waits until all is ready": install,
  "what Envoy Gateway needs besides is taken, and names the routes":
    takePolicies,
  "an upgrade replaces every edge, and never has fewer": upgrade,
  "an upgrade that the chart refuses changes nothing": refuseUpgrade,
  "one that the server refuses leaves the edges as they are": failUpgrade,
  "a rollback restores the edges, and never has fewer": rollBack,
  "of three edges, one may be evicted at a time": evictOne,
  "edges that are not ready hold up no drain": evictBroken,
  "an edge that is alone may be evicted, so that a drain ends": evictTheOnlyOne,
  "what is removed is gone, but for the volume with the keys": remove,
} as const;

Deno.test("a release on a real API server", async (t) => {
  await using cluster = await startControlPlane();
  await addSimulatedNodes(cluster);
  await defineOperators(cluster);
  const subject = {
    cluster,
    drafts: await createNamespace(cluster, "gateway"),
    production: await createNamespace(cluster, "production"),
    trial: await createNamespace(cluster, "trial"),
  };
  for (const [title, step] of Object.entries(STEPS)) {
    if (!await t.step(title, () => step(subject))) return;
  }
});
