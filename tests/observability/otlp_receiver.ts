/** Receives traces as an OpenTelemetry collector does, and keeps their spans. */
import { waitFor } from "../support/wait_for.ts";

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

/** Starts a receiver on a free port of 127.0.0.1. */
export function startOtlpReceiver() {
  const spans: ReturnType<typeof spansOf> = [];
  const address = { hostname: "127.0.0.1", port: 0, onListen: () => {} };
  const server = Deno.serve(address, async (request) => {
    const body = await request.json();
    if (request.url.endsWith("/v1/traces")) spans.push(...spansOf(body));
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
      OTEL_BSP_SCHEDULE_DELAY: "100",
    },
    spans,
    /** Waits for a span of this trace with this name. */
    span: (traceId: string, name: string) =>
      waitFor(
        () =>
          spans.find((span) => span.traceId === traceId && span.name === name),
        { what: `a span ${name}` },
      ),
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}
