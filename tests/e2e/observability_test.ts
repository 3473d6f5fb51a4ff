// Promise: one trace reaches from the caller to the model server, one id finds every
// line about a request, and every metric that is documented is exported.
import assert from "node:assert/strict";
import { newRequestId } from "@gateway/shared/process/ids";
import { METRIC_TABLES } from "../../deploy/docs/pages.ts";
import { postChat } from "../support/chat_request.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { simulates, startSimulator } from "../support/gateway/simulator.ts";
import { until } from "../support/wait_for.ts";

const CALLER_SPAN = "b7ad6b7169203331";
interface Attribute {
  key: string;
  value: { stringValue?: string };
}

/** The part of a span in OTLP/JSON that tests read. */
interface Span {
  name: string;
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  attributes?: Attribute[];
  /** 2: it has failed. */
  status?: { code?: number };
}

interface TraceExport {
  resourceSpans: {
    resource: { attributes: Attribute[] };
    scopeSpans: { spans: Span[] }[];
  }[];
}

const textsOf = (attributes: readonly Attribute[] = []) =>
  Object.fromEntries(
    attributes.map(({ key, value }) => [key, value.stringValue]),
  );

const spansOf = ({ resourceSpans }: TraceExport) =>
  resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) => spans).map((span) => ({
      ...span,
      service: textsOf(resource.attributes)["service.name"],
      attributes: textsOf(span.attributes),
    }))
  );

const SERVICES = ["edge-auth", "chat-worker", "key-admin"] as const;

Deno.test("a request can be seen from the caller to the model server", async (t) => {
  const spans: ReturnType<typeof spansOf> = [];
  const address = { hostname: "127.0.0.1", port: 0, onListen: () => {} };
  await using collector = Deno.serve(address, async (request) => {
    const body = await request.json();
    if (request.url.endsWith("/v1/traces")) spans.push(...spansOf(body));
    return Response.json({});
  });
  /** Waits for a span of this trace with this name. */
  const spanOf = (traceId: string, name: string) =>
    until(() => spans.find((s) => s.traceId === traceId && s.name === name));
  await using model = startSimulator();
  await using gateway = await startGateway("launched", {
    env: {
      UPSTREAM_BASE_URL: model.url,
      OTEL_DENO: "true",
      OTEL_DENO_CONSOLE: "ignore",
      OTEL_TRACES_SAMPLER: "parentbased_always_on",
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${collector.addr.port}`,
      OTEL_BSP_SCHEDULE_DELAY: "100",
    },
  });
  /** Sends a request of a new trace. */
  const ask = async (body: object, flags = "01") => {
    const traceId = newRequestId();
    const headers = { traceparent: `00-${traceId}-${CALLER_SPAN}-${flags}` };
    const { api_key: key } = gateway.state;
    const asked = postChat(gateway.baseUrl(), key, { body, headers });
    const response = await asked;
    await response.text();
    const requestId = response.headers.get("x-request-id") ?? "";
    return { traceId, requestId, status: response.status };
  };
  const traceOfLast = () =>
    model.asked.at(-1)?.request.headers.get("traceparent") ?? "";

  await t.step("in one trace, if the caller samples it", async () => {
    const unsampled = await ask({ stream: true }, "00");
    const passedOn = new RegExp(`^00-${unsampled.traceId}-\\w{16}-00$`);
    assert.match(traceOfLast(), passedOn);
    const { traceId, requestId } = await ask({ stream: true });
    const run = await spanOf(traceId, "chat");
    const job = await spanOf(traceId, "chat job");
    const served = await until(() =>
      spans.find(({ spanId }) => spanId === run.parentSpanId)
    );
    assert.equal(served.parentSpanId, CALLER_SPAN);
    assert.equal(job.parentSpanId, run.spanId);
    assert.deepEqual([run.service, job.service], ["edge-auth", "chat-worker"]);
    assert.equal(traceOfLast(), `00-${traceId}-${job.spanId}-01`);
    for (const { attributes, status } of [run, job]) {
      assert.equal(attributes["gateway.request_id"], requestId);
      assert.equal(attributes["gateway.outcome"], "complete");
      assert.notEqual(status?.code, 2);
    }
    const traced = spans.map((span) => span.traceId);
    assert.ok(!traced.includes(unsampled.traceId));
  });

  await t.step("by one id in every log", async () => {
    const before = model.asked.length;
    const messages = simulates("error 500");
    const { traceId, requestId, status } = await ask({ messages });
    assert.equal(status, 502);
    const expected = [
      "chat-worker backend_attempt_failed server_error",
      "chat-worker job failed",
      "edge-auth chat failed",
    ];
    await until(async () => {
      const said = (await gateway.logs()).split("\n")
        .filter((line) => line.includes(requestId))
        .map((line) => JSON.parse(line))
        .map(({ service, event, outcome }) => `${service} ${event} ${outcome}`);
      return [...new Set(said)].sort().join() === expected.join();
    });
    const asked = model.asked.slice(before);
    assert.ok(asked.length > 0);
    for (const { request: { headers } } of asked) {
      assert.equal(`req_${headers.get("x-request-id")}`, requestId);
    }
    assert.equal((await spanOf(traceId, "chat")).status?.code, 2);
    const served = spans.filter(({ name }) => name === "POST");
    const traces = new Set(served.map(({ traceId }) => traceId));
    assert.equal(traces.size, served.length);
  });

  await t.step("in metrics as documented", async () => {
    for (const service of SERVICES) {
      const [url = ""] = gateway.state.ops_urls[service] ?? [];
      const text = await (await fetch(`${url}/metrics`)).text();
      const exported = [...text.matchAll(/^# TYPE (\w+ \w+)$/gm)]
        .map(([, metric]) => metric).sort();
      const documented = METRIC_TABLES
        .filter(({ services }) => services.includes(service))
        .flatMap(({ table }) => Object.values(table))
        .map(({ name, type }) => `${name} ${type}`).sort();
      assert.deepEqual(exported, documented, service);
      assert.match(text, /^gateway_event_loop_lag_seconds_count [1-9]/m);
      assert.doesNotMatch(text, /sk-|NaN|undefined/);
    }
  });
});
