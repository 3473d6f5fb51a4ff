/**
 * Traces. Deno includes the SDK (`OTEL_DENO=true`); this creates spans for requests
 * and the work they cause. Without it nothing is recorded, and a caller's trace
 * context is passed on unchanged.
 */
import type { ServerResponse } from "node:http";
import {
  context,
  propagation,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";

/** What a span says about its work: never a key, a prompt or an answer. */
export type Attributes = Readonly<Record<string, string | number>>;

/** Makes attributes, and is called only if the span is recorded. */
export type DescribeWork = () => Attributes;

/** A piece of work in a trace, or nothing if traces are not recorded. */
export interface WorkSpan {
  /**
   * W3C trace context for work that this span causes; undefined outside of any trace.
   */
  readonly traceparent: string | undefined;
  /** Runs work whose spans become children of this one. */
  run<T>(work: () => T): T;
  /** Ends the span. With an `errorCode` the work has failed. */
  end(describe: DescribeWork, errorCode?: string): void;
}

/** What {@link startWorkSpan} takes besides the span's name. */
export interface WorkSpanOptions {
  /** `CONSUMER` and `PRODUCER` are the two ends of the bus. */
  kind: keyof typeof SpanKind;
  /**
   * W3C trace context of the cause. A span that is already active takes precedence.
   */
  parent: string | undefined;
  describe: DescribeWork;
}

const TRACER = trace.getTracer("gateway");
// Deno has registered its provider before any module is loaded.
const PROVIDER = trace.getTracerProvider();
const IS_RECORDED = !(PROVIDER instanceof ProxyTracerProvider) ||
  PROVIDER.getDelegateTracer("gateway") !== undefined;
const NO_SPAN: WorkSpan = {
  traceparent: undefined,
  run: (work) => work(),
  end(): void {},
};
/** Version, trace id, parent id, flags. An id of zeros is invalid. */
const TRACEPARENT =
  /^[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/**
 * Starts the span of work, or of a request to a `node:http` server; Deno creates those
 * of `Deno.serve`.
 */
export function startWorkSpan(
  name: string,
  { kind, parent, describe }: WorkSpanOptions,
): WorkSpan {
  if (!IS_RECORDED) {
    const isTrace = parent !== undefined && TRACEPARENT.test(parent);
    return isTrace ? { ...NO_SPAN, traceparent: parent } : NO_SPAN;
  }
  const cause = trace.getActiveSpan() === undefined
    ? propagation.extract(ROOT_CONTEXT, { traceparent: parent })
    : context.active();
  const span = TRACER.startSpan(
    name,
    { kind: SpanKind[kind], attributes: describe() },
    cause,
  );
  const within = trace.setSpan(context.active(), span);
  const carrier: { traceparent?: string } = {};
  propagation.inject(within, carrier);
  return {
    traceparent: carrier.traceparent,
    run: (work) => context.with(within, work),
    end(describe, errorCode): void {
      span.setAttributes(describe());
      if (errorCode !== undefined) {
        span.setStatus({ code: SpanStatusCode.ERROR, message: errorCode });
      }
      span.end();
    },
  };
}

/**
 * Drops the span that Deno starts for a request to a `node:http` server: it is not
 * active, so it can be no parent, and has the query, which may contain secrets.
 */
export function dropSpanOf(response: ServerResponse): void {
  if (!IS_RECORDED) return;
  for (const symbol of Object.getOwnPropertySymbols(response)) {
    if (symbol.description === "kOtelSpan") Reflect.set(response, symbol, null);
  }
}
