/** Trace context from clients and to model servers. */
import assert from "node:assert/strict";
import { startWorkSpan } from "./tracing.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const SPAN = "b7ad6b7169203331";

const describe = () => assert.fail("Nothing is recorded");

Deno.test("startWorkSpan() passes a caller's trace on when nothing is recorded", () => {
  const startWith = (parent: string | undefined) =>
    startWorkSpan("chat", { kind: "PRODUCER", describe, parent });
  const traces = ["00", "01", "03"].map((flag) =>
    `00-${TRACE}-${SPAN}-${flag}`
  );
  for (const parent of traces) {
    const span = startWith(parent);
    assert.equal(span.traceparent, parent);
    span.end(describe, "some_error");
  }
  for (
    const malformed of [
      `00-${"0".repeat(32)}-${SPAN}-01`,
      `00-${TRACE}-${"0".repeat(16)}-01`,
      `00-${TRACE.toUpperCase()}-${SPAN}-01`,
      `00-${TRACE}-${SPAN}`,
      `00-${TRACE}-${SPAN}-01\r\nx: y`,
      "",
      undefined,
    ]
  ) assert.equal(startWith(malformed).traceparent, undefined, malformed);
});
