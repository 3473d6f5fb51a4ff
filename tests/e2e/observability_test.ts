/**
 * Guarantee: what happens to a request can be seen. One trace reaches from the
 * caller to the model server, one id finds every line about it, and every metric
 * that is documented is exported.
 */
import assert from "node:assert/strict";
import { newRequestId } from "@gateway/shared/process/ids";
import { type Cluster, startCluster } from "../support/cluster.ts";
import {
  type FakeModelServer,
  startFakeModelServer,
} from "../support/fake_model_server.ts";
import { chatReply, jsonResponse } from "../support/model_answers.ts";
import {
  type OtlpReceiver,
  startOtlpReceiver,
} from "../observability/otlp_receiver.ts";
import { postChat } from "../support/chat_request.ts";
import { waitFor } from "../support/wait_for.ts";
import { METRIC_TABLES } from "../../deploy/docs/metrics.ts";
import type { ServiceName } from "../../deploy/up/plan.ts";

const CALLER_SPAN = "b7ad6b7169203331";
const SERVICES: readonly ServiceName[] = [
  "edge-auth",
  "chat-worker",
  "key-admin",
];
const goodReply = chatReply({ words: ["one", " two", " three"] });

interface Rig {
  cluster: Cluster;
  model: FakeModelServer;
  traces: OtlpReceiver;
}

const traceparent = (traceId: string, flags: string) => ({
  traceparent: `00-${traceId}-${CALLER_SPAN}-${flags}`,
});

async function ask(
  { cluster }: Rig,
  options: { headers?: Record<string, string>; stream?: boolean } = {},
): Promise<{ status: number; requestId: string }> {
  const { headers = {}, stream = true } = options;
  const { api_key: key } = cluster.state;
  const response = await postChat(cluster.baseUrl(), key, { stream }, {
    headers,
  });
  await response.text();
  const requestId = response.headers.get("x-request-id") ?? "";
  return { status: response.status, requestId };
}

/** The lines about a request, as soon as they have these events. */
async function linesOf(
  { cluster }: Rig,
  requestId: string,
  events: readonly string[],
): Promise<Record<string, unknown>[]> {
  return await waitFor(async () => {
    const lines = (await cluster.logs()).split("\n")
      .filter((line) => line.includes(requestId))
      .map((line) => JSON.parse(line));
    const isThere = (name: string) => lines.some(({ event }) => event === name);
    return events.every(isThere) && lines;
  }, { what: `the lines of the request: ${events}` });
}

async function tracedAcrossProcesses(rig: Rig): Promise<void> {
  const { model, traces } = rig;
  const traceId = newRequestId();
  const { requestId } = await ask(rig, { headers: traceparent(traceId, "01") });
  const asked = model.requests.at(-1);
  const run = await traces.span(traceId, "chat");
  const job = await traces.span(traceId, "chat job");
  const served = await waitFor(
    () => traces.spans.find(({ spanId }) => spanId === run.parentSpanId),
    { what: "the span of the HTTP server" },
  );
  assert.equal(served.parentSpanId, CALLER_SPAN);
  assert.equal(run.service, "edge-auth");
  assert.equal(job.parentSpanId, run.spanId);
  assert.equal(job.service, "chat-worker");
  assert.equal(
    asked?.headers.get("traceparent"),
    `00-${traceId}-${job.spanId}-01`,
  );
  for (const span of [run, job]) {
    assert.equal(span.attributes.get("gateway.request_id"), requestId);
    assert.equal(span.attributes.get("gateway.outcome"), "complete");
    assert.equal(span.hasFailed, false);
  }
}

async function notSampled(rig: Rig): Promise<void> {
  const { model, traces } = rig;
  const traceId = newRequestId();
  await ask(rig, { headers: traceparent(traceId, "00") });
  const passedOn = model.requests.at(-1)?.headers.get("traceparent") ?? "";
  assert.match(passedOn, new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`));
  // A later trace has arrived, so this one will not.
  const later = newRequestId();
  await ask(rig, { headers: traceparent(later, "01") });
  await traces.span(later, "chat");
  await traces.span(later, "chat job");
  assert.deepEqual(traces.spans.filter((s) => s.traceId === traceId), []);
}

async function oneIdFindsEverything(rig: Rig): Promise<void> {
  const { model, traces } = rig;
  const before = model.requests.length;
  const traceId = newRequestId();
  model.reply = () =>
    jsonResponse({ error: { message: "no" } }, { status: 500 });
  const { requestId, status } = await ask(rig, {
    headers: traceparent(traceId, "01"),
    stream: false,
  });
  model.reply = goodReply;
  assert.equal(status, 502);
  const lines = await linesOf(rig, requestId, ["chat", "job"]);
  const said = lines.map(({ service, event, outcome }) =>
    `${service} ${event} ${outcome}`
  );
  assert.deepEqual([...new Set(said)].sort(), [
    "chat-worker backend_attempt_failed server_error",
    "chat-worker job failed",
    "edge-auth chat failed",
  ]);
  assert.ok(model.requests.length > before);
  for (const asked of model.requests.slice(before)) {
    assert.equal(`req_${asked.headers.get("x-request-id")}`, requestId);
  }
  const run = await traces.span(traceId, "chat");
  assert.equal(run.hasFailed, true);
}

async function refusalsNameTheirError(rig: Rig): Promise<void> {
  const response = await fetch(`${rig.cluster.baseUrl()}/models`);
  await response.text();
  const requestId = response.headers.get("x-request-id") ?? "";
  const [line] = await linesOf(rig, requestId, ["request"]);
  assert.partialDeepStrictEqual(line, {
    status: 401,
    errorCode: "unauthorized",
    path: "/v1/models",
  });
}

async function everyMetricIsThere({ cluster }: Rig): Promise<void> {
  for (const service of SERVICES) {
    const text = await metricsText(cluster, service);
    const exported = [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)]
      .map(([, name, type]) => `${name} ${type}`).sort();
    const documented = METRIC_TABLES
      .filter(({ services }) => services.includes(service))
      .flatMap(({ table }) => Object.values(table))
      .map(({ name, type }) => `${name} ${type}`).sort();
    assert.deepEqual(exported, documented, service);
  }
  const expected: [ServiceName, RegExp[]][] = [
    ["edge-auth", [
      /^gateway_requests_total\{route="chat",status="200"\} 3$/m,
      /^gateway_requests_total\{route="chat",status="502"\} 1$/m,
      /_total\{route="models",status="401"\} 1$/m,
      /outcome="failed",code="upstream_error"\} 1$/m,
      /^gateway_time_to_first_token_seconds_count\{.*\} 3$/m,
      /^gateway_time_between_tokens_seconds_count\{.*\} 3$/m,
      /^gateway_tokens_total\{.*kind="completion"\} [1-9]\d*$/m,
      /^gateway_admissions_total\{result="admitted"\} 4$/m,
      /^gateway_known_slots\{family="chat",state="free"\} 1024$/m,
      /^gateway_redis_ready 1$/m,
    ]],
    ["chat-worker", [
      /^gateway_jobs_total\{.*outcome="complete".*\} 3$/m,
      /^gateway_bus_flowing 1$/m,
      /^gateway_backend_attempts_total\{.*outcome="server_error"\} [12]$/m,
    ]],
  ];
  for (const [service, forms] of expected) {
    const text = await metricsText(cluster, service);
    for (const form of forms) assert.match(text, form);
    assert.match(text, /^gateway_event_loop_lag_seconds_count [1-9]/m);
    assert.doesNotMatch(text, /sk-|NaN|undefined/);
  }
}

async function metricsText(cluster: Cluster, service: ServiceName) {
  const [url = ""] = cluster.state.ops_urls[service] ?? [];
  const response = await fetch(`${url}/metrics`);
  assert.equal(response.status, 200);
  return await response.text();
}

Deno.test("a request can be seen from the caller to the model server", async (t) => {
  await using traces = startOtlpReceiver();
  await using model = startFakeModelServer({ reply: goodReply });
  await using cluster = await startCluster({
    env: { ...traces.env, UPSTREAM_BASE_URL: model.baseUrl },
  });
  const rig = { cluster, model, traces };
  await t.step("in one trace", () => tracedAcrossProcesses(rig));
  await t.step("unless the caller does not sample it", () => notSampled(rig));
  await t.step("by one id in every log", () => oneIdFindsEverything(rig));
  await t.step("by the code of a refusal", () => refusalsNameTheirError(rig));
  await t.step("in metrics as documented", () => everyMetricIsThere(rig));
});
