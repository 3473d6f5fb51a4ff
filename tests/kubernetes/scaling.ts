// Promise: workers are scaled by one autoscaler or by none, by what they run and what
// waits for them, and that of a plain Kubernetes asks for the metric that the rules
// for prometheus-adapter serve. Run by `deno task test:kubernetes`.
import assert from "node:assert/strict";
import { readSource } from "../support/repository/source_files.ts";
import { z } from "zod";
import {
  installTools,
  objectsIn,
  readYaml,
  render,
} from "./rendering/rendered_chart.ts";

const FAMILIES = ["chat", "media"] as const;
/** 65 % of the slots that values.yaml gives to a worker. */
const TARGETS = { chat: "665", media: "166" };

/** Written from the code of the services. */
const METRICS = readSource("docs/reference/metrics.md");

const target = z.looseObject({ name: z.string() });
const metadata = z.looseObject({ name: z.string() });
const scaledObjectSchema = z.looseObject({
  metadata,
  spec: z.looseObject({
    scaleTargetRef: target,
    triggers: z.tuple([z.looseObject({
      metadata: z.looseObject({ query: z.string(), threshold: z.string() }),
    })]),
  }),
});
const autoscalerSchema = z.looseObject({
  metadata,
  spec: z.looseObject({
    scaleTargetRef: target,
    metrics: z.tuple([z.looseObject({
      external: z.looseObject({
        metric: z.strictObject({ name: z.string() }),
        target: z.strictObject({
          type: z.literal("AverageValue"),
          averageValue: z.string(),
        }),
      }),
    })]),
  }),
});
const adapterSchema = z.tuple([z.strictObject({
  rules: z.strictObject({
    external: z.array(z.looseObject({
      seriesQuery: z.string(),
      name: z.strictObject({ as: z.string() }),
      metricsQuery: z.string(),
    })),
  }),
})]);

await installTools();

/** The autoscalers of workers, if both kinds are scaled in this way. */
async function scalersOf(kind: string) {
  const set = FAMILIES.map((family) =>
    `${family}Worker.autoscaling.kind=${kind}`
  );
  const list = await objectsIn(await render({ example: "trial", set }));
  return list.filter(({ kind }) =>
    /^(ScaledObject|HorizontalPodAutoscaler)$/.test(kind)
  );
}

const adapterRules = async () => {
  const text = readSource("deploy/helm/beside/prometheus-adapter.yaml");
  const [{ rules }] = adapterSchema.parse(await readYaml(text));
  return rules.external;
};

Deno.test("a worker has one autoscaler, of the kind that was asked for, or none", async () => {
  assert.deepEqual(await scalersOf(""), []);
  const kinds = { keda: "ScaledObject", hpa: "HorizontalPodAutoscaler" };
  for (const [scaler, kind] of Object.entries(kinds)) {
    const found = (await scalersOf(scaler)).map((each) => ({
      kind: each.kind,
      name: each.metadata.name,
    }));
    const expected = FAMILIES.map((family) => ({
      kind,
      name: `gateway-chat-gateway-${family}-worker`,
    }));
    assert.deepEqual(found, expected);
  }
});

Deno.test("KEDA counts what workers run and what waits for them", async () => {
  const scalers = z.array(scaledObjectSchema).parse(await scalersOf("keda"));
  for (const [index, family] of FAMILIES.entries()) {
    const [{ metadata }] = scalers[index]?.spec.triggers ??
      assert.fail(family);
    const { query, threshold } = metadata;
    assert.equal(threshold, TARGETS[family]);
    assert.match(query, /^sum\(gateway_worker_in_flight\{.*\}\) \+ \(/);
    const waiting = `family="${family}"}) or vector(0))`;
    assert.ok(query.includes(waiting), query);
    for (const [name] of query.matchAll(/gateway_\w+/g)) {
      assert.ok(METRICS.includes(`| \`${name}\` `), name);
    }
  }
});

Deno.test("an HPA asks an adapter for the sum that KEDA asks Prometheus for", async () => {
  const queries = z.array(scaledObjectSchema).parse(await scalersOf("keda"))
    .map(({ spec }) => spec.triggers[0].metadata.query);
  const scalers = z.array(autoscalerSchema).parse(await scalersOf("hpa"));
  const rules = await adapterRules();
  for (const [index, family] of FAMILIES.entries()) {
    const scaler = scalers[index] ?? assert.fail(family);
    const { name } = scaler.metadata;
    assert.equal(scaler.spec.scaleTargetRef.name, name);
    const [{ external }] = scaler.spec.metrics;
    assert.equal(external.target.averageValue, TARGETS[family]);
    const rule = rules.find(({ name }) => name.as === external.metric.name) ??
      assert.fail(`no rule for ${external.metric.name}`);
    // The adapter asks for the namespace of the HPA, and serves any release in it.
    const query = rule.metricsQuery
      .replaceAll("<<.LabelMatchers>>", 'namespace="gateway"')
      .replaceAll(`.+-${family}-worker-.*`, `${name}-.*`);
    assert.equal(query, queries[index]);
    assert.match(rule.seriesQuery, /^gateway_worker_in_flight\{/);
  }
});
