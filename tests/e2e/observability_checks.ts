// Promise: one trace reaches from the caller to the model server, one id finds every
// line about a request, and every metric that is documented is exported.
import assert from "node:assert/strict";
import { newRequestId } from "@gateway/shared/process/ids";
import { METRIC_TABLES } from "../../deploy/docs/pages.ts";
import { postChat } from "../support/chat_request.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { simulates } from "../support/gateway/simulator.ts";
import { until } from "../support/wait_for.ts";
import type { ListingServer } from "./discovery/listing_server_fixture.ts";

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

/** A span with its attributes by name, and the service that made it. */
interface ServiceSpan extends Omit<Span, "attributes"> {
  service: string | undefined;
  attributes: { [name: string]: string | undefined };
}

const spansOf = ({ resourceSpans }: TraceExport): ServiceSpan[] =>
  resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) => spans).map((span) => ({
      ...span,
      service: textsOf(resource.attributes)["service.name"],
      attributes: textsOf(span.attributes),
    }))
  );

/** A gateway whose spans are collected, in front of a model server that is watched. */
export interface Observed {
  gateway: LaunchedGateway;
  server: ListingServer;
  /** All spans that have been exported so far. */
  spans: readonly ServiceSpan[];
}

/** Sends a request of a new trace. */
async function ask({ gateway }: Observed, body: object, flags = "01") {
  const traceId = newRequestId();
  const headers = { traceparent: `00-${traceId}-${CALLER_SPAN}-${flags}` };
  const { api_key: key } = gateway.state;
  const response = await postChat(gateway.baseUrl(), key, { body, headers });
  await response.text();
  const requestId = response.headers.get("x-request-id") ?? "";
  return { traceId, requestId, status: response.status };
}

/** Waits for the span of a trace with this name. */
const spanOf = ({ spans }: Observed, traceId: string, name: string) =>
  until(() =>
    spans.find((span) => span.traceId === traceId && span.name === name)
  );

/** The trace that the model server was told of last. */
const traceOfLast = ({ server }: Observed) =>
  server.requests().at(-1)?.headers.get("traceparent") ?? "";

const SERVICES = ["edge-auth", "chat-worker", "key-admin"] as const;

async function isOneTrace(observed: Observed): Promise<void> {
  const { spans } = observed;
  const unsampled = await ask(observed, { stream: true }, "00");
  const passedOn = new RegExp(`^00-${unsampled.traceId}-\\w{16}-00$`);
  assert.match(traceOfLast(observed), passedOn);
  const { traceId, requestId } = await ask(observed, { stream: true });
  const run = await spanOf(observed, traceId, "chat");
  const job = await spanOf(observed, traceId, "chat job");
  const served = await until(() =>
    spans.find(({ spanId }) => spanId === run.parentSpanId)
  );
  assert.equal(served.parentSpanId, CALLER_SPAN);
  assert.equal(job.parentSpanId, run.spanId);
  assert.deepEqual([run.service, job.service], ["edge-auth", "chat-worker"]);
  assert.equal(traceOfLast(observed), `00-${traceId}-${job.spanId}-01`);
  for (const { attributes, status } of [run, job]) {
    assert.equal(attributes["gateway.request_id"], requestId);
    assert.equal(attributes["gateway.outcome"], "complete");
    assert.equal(attributes["gateway.backend"], "upstream");
    assert.notEqual(status?.code, 2);
  }
  const traced = spans.map((span) => span.traceId);
  assert.ok(!traced.includes(unsampled.traceId));
}

async function hasOneId(observed: Observed): Promise<void> {
  const { gateway, server, spans } = observed;
  const before = server.requests().length;
  const messages = simulates("error 500");
  const { traceId, requestId, status } = await ask(observed, { messages });
  assert.equal(status, 502);
  const expected = [
    "chat-worker backend_attempt_failed server_error upstream",
    "chat-worker job failed upstream",
    "edge-auth chat failed upstream",
  ];
  await until(async () => {
    const lines = (await gateway.logs()).split("\n")
      .filter((line) => line.includes(requestId))
      .map((line) => JSON.parse(line))
      .map(({ service, event, outcome, backend }) =>
        [service, event, outcome, backend].join(" ")
      );
    return [...new Set(lines)].sort().join() === expected.join();
  });
  const requests = server.requests().slice(before);
  assert.ok(requests.length > 0);
  for (const { headers } of requests) {
    assert.equal(`req_${headers.get("x-request-id")}`, requestId);
  }
  assert.equal((await spanOf(observed, traceId, "chat")).status?.code, 2);
  const served = spans.filter(({ name }) => name === "POST");
  const traces = new Set(served.map(({ traceId }) => traceId));
  assert.equal(traces.size, served.length);
}

async function hasDocumentedMetrics({ gateway }: Observed): Promise<void> {
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
}

/** Collects the spans of services, to which they send OTLP as JSON. */
export class SpanCollector implements AsyncDisposable {
  /** All spans that have been exported so far. */
  readonly spans: ServiceSpan[] = [];
  readonly #server: Deno.HttpServer<Deno.NetAddr>;

  constructor() {
    const address = { hostname: "127.0.0.1", port: 0, onListen: () => {} };
    this.#server = Deno.serve(address, async (request) => {
      const body = await request.json();
      if (request.url.endsWith("/v1/traces")) this.spans.push(...spansOf(body));
      return Response.json({});
    });
  }

  /** The variables of services that send their spans here, at once. */
  get env(): Record<string, string> {
    const { port } = this.#server.addr;
    return {
      OTEL_DENO: "true",
      OTEL_DENO_CONSOLE: "ignore",
      OTEL_TRACES_SAMPLER: "parentbased_always_on",
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
      OTEL_BSP_SCHEDULE_DELAY: "100",
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
  }
}

/** A request can be seen from the caller to the model server. */
export async function checkObservability(
  t: Deno.TestContext,
  observed: Observed,
): Promise<void> {
  await t.step(
    "in one trace, if the caller samples it",
    () => isOneTrace(observed),
  );

  await t.step("by one id in every log", () => hasOneId(observed));

  await t.step(
    "in metrics as documented",
    () => hasDocumentedMetrics(observed),
  );
}
