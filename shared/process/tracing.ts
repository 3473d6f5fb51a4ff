/**
 * Traces. Deno includes the SDK (`OTEL_DENO=true`); this creates spans for requests
 * and the work they cause. Without it nothing is recorded, and a caller's trace
 * context is passed on unchanged.
 */
import type { Context, SpanContext } from "@opentelemetry/api";
import {
  context,
  isSpanContextValid,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
} from "@opentelemetry/api";

/** Never a key, a prompt or an answer. */
type Attributes = Readonly<Record<string, string | number>>;

export type WorkSpan = ReturnType<typeof startWorkSpan>;

const KINDS = {
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
  server: SpanKind.SERVER,
} as const;
const TRACER = trace.getTracer("gateway");
const HEX = 16;
/** Version, trace id, parent id, flags. */
const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/** Starts the span of work, or of a request to a `node:http` server; Deno creates those of `Deno.serve`. */
export function startWorkSpan(
  name: string,
  { kind, parent, attributes }: {
    /** `consumer` and `producer` are the two ends of the bus. */
    kind: keyof typeof KINDS;
    /** W3C trace context of the cause. A span that is already active takes precedence. */
    parent: string | undefined;
    attributes: Attributes;
  },
) {
  const span = TRACER.startSpan(
    name,
    { kind: KINDS[kind], attributes },
    contextOf(parent),
  );
  return {
    /** W3C trace context for work that this span causes; undefined outside of any trace. */
    traceparent: formatTraceparent(span.spanContext()),
    /** Runs work whose spans become children of this one. */
    run: <T>(work: () => T): T =>
      span.isRecording()
        ? context.with(trace.setSpan(context.active(), span), work)
        : work(),
    /** Ends the span. With an `errorCode` the work has failed. */
    end(attributes: Attributes, errorCode?: string): void {
      if (!span.isRecording()) return;
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
  return remote ? trace.setSpanContext(ROOT_CONTEXT, remote) : ROOT_CONTEXT;
}

/** The span that a `traceparent` names, or null if it is malformed. */
export function parseTraceparent(text: string): SpanContext | null {
  const [, traceId = "", spanId = "", flags = ""] = text.match(TRACEPARENT) ??
    [];
  const traceFlags = parseInt(flags, HEX) & TraceFlags.SAMPLED;
  const remote = { traceId, spanId, traceFlags, isRemote: true };
  return isSpanContextValid(remote) ? remote : null;
}

/** The `traceparent` of a span, or undefined if it belongs to no trace. */
export function formatTraceparent(span: SpanContext): string | undefined {
  if (!isSpanContextValid(span)) return undefined;
  const flags = span.traceFlags.toString(HEX).padStart(2, "0");
  return `00-${span.traceId}-${span.spanId}-${flags}`;
}
