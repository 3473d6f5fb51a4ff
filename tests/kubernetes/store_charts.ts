// Promise: with the values of deploy/helm/beside, the charts of NATS and Valkey make
// what the example for production expects: addresses, users, volumes, and policies that
// let in its services alone. Run by `deno task test:kubernetes`.
import assert from "node:assert/strict";
import { makeTempDir, print, runProcess } from "../support/process.ts";
import { readSource } from "../support/repository/source_files.ts";
import { z } from "zod";
import {
  configMapSchema,
  type KubernetesObject,
  objectSchema,
  workloadSchema,
} from "./rendering/objects.ts";
import {
  installTools,
  KUBERNETES_VERSIONS,
  objectsIn,
  render,
  validate,
} from "./rendering/rendered_chart.ts";
import {
  renderStores,
  type StoreCharts,
  takeCharts,
} from "./rendering/store_charts.ts";

/** Which services of the gateway may call which port of which store. */
const WAYS = {
  "nats 4222": ["chat-worker", "edge-auth", "key-admin", "media-worker"],
  // Its servers among themselves.
  "nats 6222": ["nats"],
  "valkey 6379": ["edge-auth", "key-admin"],
};
/** What operators make before, as docs/kubernetes.md says. */
const MADE_BEFORE = [
  "create configmap gateway-nats --from-file=deploy/nats/nats.conf",
  "create secret generic gateway-redis-users",
  "--from-file=deploy/secrets/redis_users.acl",
  "create configmap gateway-models --from-file=models.json",
  "create secret generic gateway-model-keys",
  "create secret generic gateway-oidc",
];

const labels = z.record(z.string(), z.string());
const podsSchema = objectSchema.extend({
  spec: z.looseObject({
    template: z.looseObject({ metadata: z.looseObject({ labels }) }),
  }),
});
const serversSchema = podsSchema.extend({
  spec: podsSchema.shape.spec.extend({
    replicas: z.number(),
    serviceName: z.string(),
  }),
});
const serviceSchema = objectSchema.extend({
  spec: z.looseObject({ ports: z.array(z.looseObject({ port: z.number() })) }),
});
const policySchema = objectSchema.extend({
  spec: z.strictObject({
    podSelector: z.strictObject({ matchLabels: labels }),
    policyTypes: z.tuple([z.literal("Ingress")]),
    ingress: z.array(z.strictObject({
      from: z.array(z.strictObject({
        podSelector: z.strictObject({
          matchLabels: labels,
          matchExpressions: z.array(z.strictObject({
            key: z.string(),
            operator: z.literal("In"),
            values: z.array(z.string()),
          })).default([]),
        }),
      })),
      ports: z.array(z.strictObject({ port: z.number() })),
    })),
  }),
});
type Policy = z.output<typeof policySchema>;
type Rule = Policy["spec"]["ingress"][number];

await installTools();

async function validateAll(charts: StoreCharts): Promise<void> {
  for (const version of KUBERNETES_VERSIONS) {
    await validate(await renderStores(charts, version), version);
  }
}

async function findServers(charts: StoreCharts): Promise<void> {
  const stores = await renderStores(charts, "1.36");
  const services = await objectsIn(await render({ example: "production" }));
  const edge = workloadSchema.parse(
    named(services, "Deployment", "gateway-chat-gateway-edge-auth"),
  );
  const [{ env }] = edge.spec.template.spec.containers;
  const urls = (name: string) =>
    (env.find((each) => each.name === name)?.value ?? "").split(",")
      .map((each) => new URL(each));
  const { spec } = serversSchema.parse(named(stores, "StatefulSet", "nats"));
  const servers = Array.from(
    { length: spec.replicas },
    (_, index) => `nats-${index}.${spec.serviceName}:4222`,
  );
  assert.deepEqual(urls("NATS_URL").map(({ host }) => host), servers);
  named(stores, "Service", spec.serviceName);
  const [store] = urls("REDIS_URL");
  const { spec: { ports } } = serviceSchema.parse(
    named(stores, "Service", store?.hostname ?? ""),
  );
  assert.deepEqual(ports.map(({ port }) => String(port)), [store?.port]);
}

async function checkWays(charts: StoreCharts): Promise<void> {
  const stores = await renderStores(charts, "1.36");
  const services = await objectsIn(await render({ example: "production" }));
  const pods = [...services, ...stores]
    .filter(({ kind }) => /^(Deployment|StatefulSet)$/.test(kind))
    .map((each) => podsSchema.parse(each).spec.template.metadata.labels);
  const found: Record<string, string[]> = {};
  for (const policy of stores.filter(isPolicy)) {
    const { metadata, spec } = policySchema.parse(policy);
    const own = pods.filter((each) => has(each, spec.podSelector.matchLabels));
    assert.equal(own.length, 1, metadata.name);
    for (const rule of spec.ingress) {
      const [{ port } = assert.fail("every port")] = rule.ports;
      found[`${metadata.name} ${port}`] = pods
        .filter((each) => letsIn(rule, each))
        .map((each) => each["app.kubernetes.io/component"] ?? "").sort();
    }
  }
  assert.deepEqual(found, WAYS);
}

async function readUsers(charts: StoreCharts): Promise<void> {
  const stores = await renderStores(charts, "1.36");
  const map = configMapSchema.parse(
    named(stores, "ConfigMap", "nats-config"),
  );
  await using folder = await makeTempDir();
  const { path } = folder;
  const file = `${path}/config/nats.conf`;
  await Deno.mkdir(`${path}/config`);
  await Deno.writeTextFile(file, map.data["nats.conf"] ?? "");
  const env = { SECRETS_DIR: `${path}/secrets`, SERVER_NAME: "nats-0" };
  await runProcess("deploy/secrets.sh", [], { env });
  const check = () => runProcess("nats-server", ["-t", "-c", file], { env });
  await assert.rejects(check(), /gateway\/nats\.conf/);
  await Deno.mkdir(`${path}/gateway`);
  await Deno.copyFile("deploy/nats/nats.conf", `${path}/gateway/nats.conf`);
  await Deno.copyFile(
    `${path}/secrets/nats_passwords.conf`,
    `${path}/gateway/passwords.conf`,
  );
  await check();
}

async function compareSettings(charts: StoreCharts): Promise<void> {
  const stores = await renderStores(charts, "1.36");
  const map = configMapSchema.parse(
    named(stores, "ConfigMap", "valkey-config"),
  );
  const settings = readSource("deploy/redis/redis.conf").trim();
  assert.equal(map.data["valkey.conf"]?.trim(), settings);
  const server = named(stores, "Deployment", "valkey");
  assert.partialDeepStrictEqual(server.spec, {
    replicas: 1,
    strategy: { type: "Recreate" },
  });
  named(stores, "PersistentVolumeClaim", "valkey");
  const text = JSON.stringify(server);
  assert.match(text, /"claimName":"valkey"/);
  assert.match(text, /"mountPath":"\/run\/secrets"/);
}

const PROMISES = {
  "the charts of the stores are valid for every supported version": validateAll,
  "production finds the servers of the stores by their names": findServers,
  "only services of the gateway have a way to a store that they need":
    checkWays,
  "NATS reads the users of the gateway, and its own ports": readUsers,
  "Valkey has the settings of compose, and never two servers on a volume":
    compareSettings,
} as const;

const charts = await takeCharts();
if (typeof charts === "string") {
  print(`Left out: the charts of NATS and Valkey: ${charts}`);
} else {
  for (const [title, check] of Object.entries(PROMISES)) {
    Deno.test(title, () => check(charts));
  }
}

Deno.test("NATS and Valkey have the versions of compose", () => {
  const values = readSource("deploy/helm/chat-gateway/values.yaml");
  const images = [...values.matchAll(/image: (?:valkey\/)?(\w+):(\S+)/g)];
  assert.equal(images.length, 2);
  for (const [, name, tag] of images) {
    const text = readSource(`deploy/helm/beside/${name}.yaml`);
    assert.ok(text.includes(`tag: ${tag} `), `${name} ${tag}`);
  }
});

Deno.test("what the charts and production mount, operators are told to make", () => {
  const page = readSource("docs/kubernetes.md");
  for (const command of MADE_BEFORE) assert.ok(page.includes(command));
});

/** The object of a kind and a name. */
function named(
  objects: readonly KubernetesObject[],
  kind: string,
  name: string,
): KubernetesObject {
  return objects.find((each) =>
    each.kind === kind && each.metadata.name === name
  ) ?? assert.fail(`there is no ${kind} ${name}`);
}

const isPolicy = ({ kind }: KubernetesObject) => kind === "NetworkPolicy";

/** Whether labels have all that others have. */
function has(
  all: Readonly<Record<string, string>>,
  some: Readonly<Record<string, string>>,
): boolean {
  return Object.entries(some).every(([name, value]) => all[name] === value);
}

/** Whether a rule lets in a pod with these labels. */
function letsIn(
  { from }: Rule,
  pod: Readonly<Record<string, string>>,
): boolean {
  return from.some(({ podSelector: { matchLabels, matchExpressions } }) =>
    has(pod, matchLabels) &&
    matchExpressions.every(({ key, values }) => values.includes(pod[key] ?? ""))
  );
}
