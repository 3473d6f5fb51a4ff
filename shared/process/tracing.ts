/**
 * Traces. Deno brings the SDK (`OTEL_DENO=true`); this makes a span for every HTTP
 * request of the edge and for the work behind it, across processes. Without `OTEL_DENO`
 * nothing is recorded, a span costs some hundred nanoseconds, and a trace that a
 * caller began is passed on as it came.
 */
import {
  type Context,
  context,
  isSpanContextValid,
  ROOT_CONTEXT,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
} from "@opentelemetry/api";

/** Attributes of a span. Never a key, a prompt or an answer. */
export type WorkSpanAttributes = Readonly<Record<string, string | number>>;

/** A piece of work that shows in a trace. */
export interface WorkSpan {
  /** W3C trace context for work that is done because of this; absent outside of any trace. */
  readonly traceparent: string | undefined;
  /** Runs work whose own spans belong to this one. */
  run<T>(work: () => T): T;
  /** The work is over. With an `errorCode` it has failed. */
  end(attributes: WorkSpanAttributes, errorCode?: string): void;
}

export interface WorkSpanOptions {
  /** `consumer` and `producer` are the two ends of the bus. */
  kind: keyof typeof KINDS;
  /** W3C trace context of what caused it. A span that is active already takes precedence. */
  parent: string | undefined;
  attributes: WorkSpanAttributes;
}

const TRACER = "gateway";
const KINDS = {
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
  server: SpanKind.SERVER,
} as const;
const SERVER_FAULT = 500;
const HEX = 16;
/** Version, trace id, parent id, flags. */
const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/** Begins the span of a request that node:http took in; Deno makes those of its own server. */
export function startServerSpan(method: string, parent: string | undefined) {
  const attributes = { "http.request.method": method };
  const span = startWorkSpan(method, { kind: "server", parent, attributes });
  return {
    run: span.run,
    /** The response has gone out, or its client has left. */
    end: (status: number) =>
      span.end(
        { "http.response.status_code": status },
        status >= SERVER_FAULT ? String(status) : undefined,
      ),
  };
}

/** Begins a span. */
export function startWorkSpan(
  name: string,
  { kind, parent, attributes }: WorkSpanOptions,
): WorkSpan {
  const span = trace.getTracer(TRACER).startSpan(
    name,
    { kind: KINDS[kind], attributes },
    contextOf(parent),
  );
  return {
    traceparent: formatTraceparent(span.spanContext()),
    run: (work) => context.with(trace.setSpan(context.active(), span), work),
    end(attributes, errorCode) {
      span.setAttributes(attributes);
      if (errorCode !== undefined) {
        span.setStatus({ code: SpanStatusCode.ERROR, message: errorCode });
      }
      span.end();
    },
  };
}

function contextOf(parent: string | undefined): Context {
  if (trace.getActiveSpan() !== undefined) return context.active();
  const remote = parent === undefined ? null : parseTraceparent(parent);
  return remote === null
    ? ROOT_CONTEXT
    : trace.setSpanContext(ROOT_CONTEXT, remote);
}

/** The span a `traceparent` names, or null when it names none. */
export function parseTraceparent(text: string): SpanContext | null {
  const [, traceId = "", spanId = "", flags = ""] = TRACEPARENT.exec(text) ??
    [];
  const remote: SpanContext = {
    traceId,
    spanId,
    traceFlags: parseInt(flags, HEX) & TraceFlags.SAMPLED,
    isRemote: true,
  };
  return isSpanContextValid(remote) ? remote : null;
}

/** The `traceparent` of a span, or undefined when it belongs to no trace. */
export function formatTraceparent(span: SpanContext): string | undefined {
  if (!isSpanContextValid(span)) return undefined;
  const flags = span.traceFlags.toString(HEX).padStart(2, "0");
  return `00-${span.traceId}-${span.spanId}-${flags}`;
}
