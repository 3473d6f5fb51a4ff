// Promise: the chart renders objects that Kubernetes accepts and that fit each other,
// and refuses settings that would lose answers or open what is closed. Run by
// `deno task test:kubernetes`.
import assert from "node:assert/strict";
import { readSource } from "../support/repository/source_files.ts";
import { z } from "zod";
import * as objects from "./rendering/objects.ts";
import {
  EXAMPLES,
  helm,
  installTools,
  KUBERNETES_VERSIONS,
  objectsIn,
  render,
  validate,
  valuesOf,
} from "./rendering/rendered_chart.ts";

/** Groups of Kubernetes itself: others come with operators that users install. */
const BUILT_IN = /^(v1|apps|policy|autoscaling|networking\.k8s\.io)/;
/** What may read which password of the Secret. */
const PASSWORDS: Readonly<Record<string, readonly string[]>> = {
  "edge-auth": ["nats_edge_password", "redis_edge_password"],
  "chat-worker": ["nats_worker_password"],
  "media-worker": ["nats_media_password"],
  "key-admin": ["nats_admin_password", "redis_admin_password"],
  "model-simulator": [],
  "nats": ["nats_passwords.conf"],
  "redis": ["redis_users.acl"],
};
const SECONDS_BEFORE_KILL = 5;
/** Variables with which a service finds and trusts Redis behind sentinels. */
const STORE_VARIABLES = [
  "REDIS_CA_FILE",
  "REDIS_CERT_FILE",
  "REDIS_KEY_FILE",
  "REDIS_SENTINEL_NAME",
  "REDIS_SENTINEL_PASSWORD_FILE",
  "REDIS_SENTINEL_USERNAME",
];
/** The ports of Redis and its sentinels. */
const STORE_PORTS = [6379, 26379];

await installTools();

/** The objects of each example. */
const rendered = new Map<string, objects.KubernetesObject[]>();
for (const example of EXAMPLES) {
  rendered.set(example, await objectsIn(await render({ example })));
}

/** The objects of some kinds in all examples. */
function all<Schema extends z.ZodType<objects.KubernetesObject>>(
  kind: RegExp,
  schema: Schema,
) {
  return [...rendered].flatMap(([example, list]) =>
    list.filter((object) => kind.test(object.kind)).map((each) => {
      const object = schema.parse(each);
      const { name } = object.metadata;
      const where = `${example}: ${object.kind} ${name}`;
      return { example, object, name, where };
    })
  );
}

const WORKLOADS = all(/^(Deployment|StatefulSet)$/, objects.workloadSchema);
const POLICIES = all(/^NetworkPolicy$/, objects.policySchema);

const labelsOf = ({ spec }: objects.Workload) => spec.template.metadata.labels;
const componentOf = (object: objects.Workload) =>
  labelsOf(object)["app.kubernetes.io/component"] ?? "";

/** Whether labels have all that a selector wants. */
function matches(
  selector: Readonly<Record<string, string>>,
  labels: Readonly<Record<string, string>>,
): boolean {
  return Object.entries(selector).every(([name, value]) =>
    labels[name] === value
  );
}

/** The workloads of an example whose pods a selector matches. */
const selected = (
  example: string,
  selector: Readonly<Record<string, string>>,
) =>
  WORKLOADS.filter((each) =>
    each.example === example && matches(selector, labelsOf(each.object))
  );

Deno.test("helm finds no fault in the chart with any example", async () => {
  for (const example of EXAMPLES) {
    const [chart = "", ...values] = valuesOf({ example });
    await helm("lint", "--strict", chart, ...values);
  }
});

Deno.test("every example is valid for every supported version of Kubernetes", async () => {
  for (const version of KUBERNETES_VERSIONS) {
    for (const example of EXAMPLES) {
      const found = await objectsIn(await render({ example, version }));
      const builtIn = found.filter(({ apiVersion }) =>
        BUILT_IN.test(apiVersion)
      );
      assert.ok(builtIn.length >= 15, `${example} has ${builtIn.length}`);
      await validate(builtIn, version);
    }
  }
});

Deno.test("a broken object does not pass the validation", async () => {
  const [deployment] = WORKLOADS;
  assert.ok(deployment);
  const { object } = deployment;
  const broken = { ...object, spec: { ...object.spec, replica: 1 } };
  await assert.rejects(validate([broken], "1.37"), /replica/);
});

Deno.test("selectors of services, budgets and monitors match pods of the chart", () => {
  for (
    const { example, object, where } of all(/^Service$/, objects.serviceSchema)
  ) {
    const pods = selected(example, object.spec.selector);
    assert.equal(pods.length, 1, where);
    const ports = pods.flatMap((each) =>
      each.object.spec.template.spec.containers[0].ports
    ).map(({ name }) => name);
    for (const { targetPort } of object.spec.ports) {
      assert.ok(ports.includes(targetPort), `${where}: ${targetPort}`);
    }
  }
  const selecting = all(
    /^(PodDisruptionBudget|PodMonitor)$/,
    objects.selectingSchema,
  );
  for (const { example, object, where } of selecting) {
    const { matchLabels } = object.spec.selector;
    assert.equal(selected(example, matchLabels).length, 1, where);
  }
});

Deno.test("a budget of disruptions exists only where another pod remains", () => {
  const budgets = all(/^PodDisruptionBudget$/, objects.selectingSchema);
  const namesIn = (example: string) =>
    budgets.filter((each) => each.example === example)
      .map(({ name }) => name).sort();
  assert.deepEqual(namesIn("trial"), []);
  assert.deepEqual(namesIn("production"), [
    "gateway-chat-gateway-chat-worker",
    "gateway-chat-gateway-edge-auth",
    "gateway-chat-gateway-key-admin",
  ]);
});

Deno.test("every pod is restricted: no root, no privileges, no token, nothing to write", () => {
  for (const { object, where } of WORKLOADS) {
    const { spec } = object.spec.template;
    assert.equal(spec.automountServiceAccountToken, false, where);
    assert.equal(spec.securityContext.runAsNonRoot, true, where);
    assert.equal(spec.securityContext.seccompProfile.type, "RuntimeDefault");
    const [{ securityContext, image }] = spec.containers;
    assert.deepEqual(securityContext, {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    }, where);
    assert.match(image, /:[\w.-]+$/, where);
    assert.doesNotMatch(image, /:latest$/, where);
  }
});

Deno.test("a new version of the chart alone restarts no pod", () => {
  for (const { object, where } of WORKLOADS) {
    const labels = Object.keys(labelsOf(object));
    assert.ok(!labels.includes("helm.sh/chart"), where);
    if (object.kind !== "StatefulSet") continue;
    assert.ok(!labels.includes("app.kubernetes.io/version"), where);
    const { annotations } = object.spec.template.metadata;
    assert.match(annotations["checksum/config"] ?? "", /^[0-9a-f]{64}$/, where);
  }
});

Deno.test("a pod sees the passwords of its service, and no others", () => {
  for (const { object, where } of WORKLOADS) {
    const { volumes } = object.spec.template.spec;
    const keys = volumes.flatMap(({ secret, projected }) => {
      const isPasswords = secret?.secretName === "gateway-secrets";
      const items = isPasswords ? secret?.items ?? [{ key: "all" }] : [];
      const sources = projected?.sources ?? [];
      const more = sources.flatMap(({ secret }) => secret?.items ?? []);
      return [...items, ...more].map(({ key }) => key);
    });
    assert.deepEqual(keys, PASSWORDS[componentOf(object)], where);
  }
});

Deno.test("no password is in a ConfigMap or in a variable", () => {
  const maps = all(/^ConfigMap$/, objects.configMapSchema);
  for (const { object, where } of maps) {
    const text = JSON.stringify(object.data);
    assert.doesNotMatch(text, /sk-|BEGIN [A-Z ]*PRIVATE KEY/, where);
  }
  for (const { object, where } of WORKLOADS) {
    const [{ env }] = object.spec.template.spec.containers;
    for (const { name, value } of env) {
      if (value === undefined) continue;
      assert.doesNotMatch(name, /(PASSWORD|SECRET|API_KEY)$/, where);
    }
  }
});

Deno.test("a pod has longer to stop than its answers may take", () => {
  for (const { object, where } of WORKLOADS) {
    if (object.kind !== "Deployment") continue;
    const { spec } = object.spec.template;
    const [{ env, lifecycle }] = spec.containers;
    const variable = (name: string) =>
      Number(env.find((each) => each.name === name)?.value ?? 0);
    const neededSeconds = variable("DRAIN_SECONDS") +
      variable("DRAIN_LEAD_SECONDS") +
      (lifecycle?.preStop.sleep.seconds ?? 0);
    const graceSeconds = spec.terminationGracePeriodSeconds;
    assert.ok(graceSeconds >= neededSeconds + SECONDS_BEFORE_KILL, where);
  }
});

Deno.test("a worker has no way to Redis, and nobody but services has one", () => {
  for (const { object, name, where } of POLICIES) {
    if (!name.endsWith("-worker")) continue;
    for (const { to, ports } of object.spec.egress) {
      if (to !== undefined) {
        assert.doesNotMatch(JSON.stringify(to), /redis/, where);
        continue;
      }
      for (const { port, endPort } of ports) {
        const from = Number(port);
        const hasStore = STORE_PORTS.some((each) =>
          each >= from && each <= (endPort ?? from)
        );
        assert.equal(hasStore, false, `${where}: ${port} to ${endPort}`);
      }
    }
  }
  const stores = POLICIES.filter(({ name }) => name.endsWith("-redis"));
  assert.equal(stores.length, 1);
  const text = JSON.stringify(stores[0]?.object.spec.ingress);
  assert.match(text, /edge-auth/);
  assert.doesNotMatch(text, /worker/);
});

Deno.test("every pod of a service is under a policy for what comes and what goes", () => {
  for (const { example, object, where } of WORKLOADS) {
    if (componentOf(object) === "model-simulator") continue;
    const policies = POLICIES.filter((each) =>
      each.example === example &&
      matches(each.object.spec.podSelector.matchLabels, labelsOf(object))
    );
    assert.equal(policies.length, 1, where);
    const [policy] = policies;
    assert.deepEqual(policy?.object.spec.policyTypes, ["Ingress", "Egress"]);
  }
});

Deno.test("configuration and alerts are those of compose", async () => {
  const set = [
    "metrics.prometheusRule.enabled=true",
    "metrics.dashboard.enabled=true",
  ];
  const list = await objectsIn(await render({ example: "trial", set }));
  const maps = list.filter(({ kind }) => kind === "ConfigMap")
    .map((each) => objects.configMapSchema.parse(each));
  const textOf = (name: string, file: string) => {
    const map = maps.find(({ metadata }) => metadata.name.endsWith(`-${name}`));
    return map?.data[file]?.trim() ?? "";
  };
  const nats = readSource("deploy/nats/nats.conf").trim();
  assert.equal(textOf("nats", "nats.conf"), nats);
  const redis = readSource("deploy/redis/redis.conf").trim();
  assert.equal(textOf("redis", "redis.conf"), redis);
  assert.deepEqual(
    JSON.parse(textOf("dashboard", "gateway.json")),
    JSON.parse(
      readSource("deploy/observability/grafana/dashboards/gateway.json"),
    ),
  );
  const rule = objects.ruleSchema.parse(
    list.find(({ kind }) => kind === "PrometheusRule"),
  );
  const alerts = readSource("deploy/observability/alerts.yml")
    .split("- alert: ").length - 1;
  const rules = rule.spec.groups.flatMap((group) => group.rules);
  assert.equal(rules.length, alerts);
});

Deno.test("certificates and the user of sentinels reach the services that need them", async () => {
  const set = [
    "nats.clientCertificate=true",
    "redis.clientCertificate=true",
    "redis.sentinels={sentinel:26379}",
    "redis.sentinelName=gateway",
    "redis.sentinelUsername=lookup",
  ];
  const list = await objectsIn(await render({ example: "managed", set }));
  const services = list.filter(({ kind }) => kind === "Deployment")
    .map((each) => objects.workloadSchema.parse(each));
  assert.ok(services.length >= 4);
  for (const service of services) {
    const { spec } = service.spec.template;
    const [{ env }] = spec.containers;
    const names = env.map(({ name }) => name)
      .filter((name) => /_(CA|CERT|KEY)_FILE|SENTINEL_/.test(name)).sort();
    const hasStore = env.some(({ name }) => name === "REDIS_URL");
    assert.deepEqual(names, [
      "NATS_CA_FILE",
      "NATS_CERT_FILE",
      "NATS_KEY_FILE",
      ...hasStore ? STORE_VARIABLES : [],
    ]);
    const text = JSON.stringify(spec.volumes);
    assert.equal(text.includes("redis_lookup_password"), hasStore);
  }
});

/** Settings that the chart refuses, and what it says. */
const REFUSED: readonly { set: string; says: RegExp }[] = [
  { set: "secrets.existingSecret=", says: /there are no default passwords/ },
  { set: "nats.bundled=false", says: /nats\.url: which servers\?/ },
  { set: "redis.bundled=false", says: /redis\.url: which server\?/ },
  { set: "simulator.enabled=false", says: /models: which ones\?/ },
  {
    set: "edge.terminationGracePeriodSeconds=60",
    says: /edge-auth: terminationGracePeriodSeconds is 60, but stopping may/,
  },
  {
    set: "chatWorker.terminationGracePeriodSeconds=600",
    says: /chat-worker: terminationGracePeriodSeconds is 600/,
  },
  { set: "ingress.enabled=true", says: /edge\.trustedProxies/ },
  { set: "httpRoute.enabled=true", says: /edge\.trustedProxies/ },
  { set: "keyAdmin.publicUrl=", says: /keyAdmin\.publicUrl/ },
  {
    set: "keyAdmin.oidc.issuer=https://login.example.org",
    says: /client_id and client_secret/,
  },
  { set: "chatWorker.autoscaling.kind=both", says: /autoscaling/ },
  { set: "edge.replica=2", says: /replica/ },
  { set: "edge.env.lower=x", says: /lower/ },
  { set: "nats.url=http://nats:4222", says: /url/ },
  { set: "edge.autoscaling.cpuPercent=101", says: /cpuPercent/ },
];

Deno.test("settings that would lose answers or open what is closed are refused", async () => {
  for (const { set, says } of REFUSED) {
    await assert.rejects(render({ example: "trial", set: [set] }), says, set);
  }
});

/** Settings at their bounds, which are taken. */
const TAKEN = [
  // 600 + 10 + 5 seconds are needed.
  "edge.terminationGracePeriodSeconds=616",
  "chatWorker.terminationGracePeriodSeconds=601",
  "edge.autoscaling.cpuPercent=100",
  "mediaWorker.replicas=0",
  "networkPolicy.enabled=false",
];

Deno.test("settings at their bounds are taken", async () => {
  for (const set of TAKEN) await render({ example: "trial", set: [set] });
});
