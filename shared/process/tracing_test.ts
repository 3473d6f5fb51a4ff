import assert from "node:assert/strict";
import {
  formatTraceparent,
  parseTraceparent,
  startWorkSpan,
} from "./tracing.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const SPAN = "b7ad6b7169203331";

Deno.test("parseTraceparent() reads what formatTraceparent() writes, and nothing else", () => {
  for (
    const [text, expected] of [
      [`00-${TRACE}-${SPAN}-01`, `00-${TRACE}-${SPAN}-01`],
      [`00-${TRACE}-${SPAN}-00`, `00-${TRACE}-${SPAN}-00`],
      // A flag that is not known yet is not passed on.
      [`00-${TRACE}-${SPAN}-03`, `00-${TRACE}-${SPAN}-01`],
      [`00-${"0".repeat(32)}-${SPAN}-01`, null],
      [`00-${TRACE}-${"0".repeat(16)}-01`, null],
      [`00-${TRACE.toUpperCase()}-${SPAN}-01`, null],
      [`00-${TRACE}-${SPAN}`, null],
      [`00-${TRACE}-${SPAN}-01\r\nx: y`, null],
      ["", null],
    ] as const
  ) {
    const span = parseTraceparent(text);
    assert.equal(span === null ? null : formatTraceparent(span), expected);
  }
});

Deno.test("startWorkSpan() passes a caller's trace on when nothing is recorded", () => {
  const parent = `00-${TRACE}-${SPAN}-01`;
  const options = { kind: "PRODUCER", attributes: {} } as const;
  const span = startWorkSpan("chat", { ...options, parent });
  assert.equal(span.traceparent, parent);
  span.end({}, "some_error");
  assert.equal(
    startWorkSpan("chat", { ...options, parent: undefined }).traceparent,
    undefined,
  );
});
