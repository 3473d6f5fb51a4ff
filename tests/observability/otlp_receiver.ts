/** Receives traces as an OpenTelemetry collector does, and keeps their spans. */
import { waitFor } from "../support/wait_for.ts";

/** A span as it was sent. */
export interface ReceivedSpan {
  service: string;
  name: string;
  traceId: string;
  spanId: string;
  /** Empty for the root of a trace. */
  parentSpanId: string;
  attributes: ReadonlyMap<string, string>;
  hasFailed: boolean;
}

export type OtlpReceiver = ReturnType<typeof startOtlpReceiver>;

interface Attribute {
  key: string;
  value: { stringValue?: string; intValue?: string };
}

/** The part of OTLP/JSON that tests read. */
interface TraceExport {
  resourceSpans: {
    resource: { attributes: Attribute[] };
    scopeSpans: {
      spans: {
        name: string;
        traceId: string;
        spanId: string;
        parentSpanId?: string;
        attributes?: Attribute[];
        status?: { code?: number };
      }[];
    }[];
  }[];
}

const STATUS_ERROR = 2;
const EXPORT_EVERY_MS = "100";
const SPAN_WAIT_MS = 30_000;

/** Starts a receiver on a free port of 127.0.0.1. */
export function startOtlpReceiver() {
  const spans: ReceivedSpan[] = [];
  const server = Deno.serve({
    hostname: "127.0.0.1",
    port: 0,
    onListen: () => {},
  }, async (request) => {
    const body = await request.json();
    if (new URL(request.url).pathname === "/v1/traces") {
      spans.push(...spansOf(body));
    }
    return Response.json({});
  });
  return {
    /** The variables with which a service soon sends its traces here. */
    env: {
      OTEL_DENO: "true",
      OTEL_DENO_CONSOLE: "ignore",
      OTEL_TRACES_SAMPLER: "parentbased_always_on",
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${server.addr.port}`,
      OTEL_BSP_SCHEDULE_DELAY: EXPORT_EVERY_MS,
    },
    spans,
    /** Waits for a span of this trace with this name. */
    span: (traceId: string, name: string) =>
      waitFor(
        () =>
          spans.find((span) => span.traceId === traceId && span.name === name),
        { what: `a span ${name}`, timeoutMs: SPAN_WAIT_MS },
      ),
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

function spansOf(body: TraceExport): ReceivedSpan[] {
  return body.resourceSpans.flatMap(({ resource, scopeSpans }) => {
    const service = textsOf(resource.attributes).get("service.name") ?? "";
    return scopeSpans.flatMap(({ spans }) => spans).map((span) => ({
      service,
      name: span.name,
      traceId: span.traceId,
      spanId: span.spanId,
      parentSpanId: span.parentSpanId ?? "",
      attributes: textsOf(span.attributes ?? []),
      hasFailed: span.status?.code === STATUS_ERROR,
    }));
  });
}

function textsOf(attributes: readonly Attribute[]): Map<string, string> {
  return new Map(
    attributes.map(({ key, value }) => [
      key,
      value.stringValue ?? value.intValue ?? "",
    ]),
  );
}
