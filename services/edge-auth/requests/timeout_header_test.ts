/** The header `X-Gateway-Timeout`. */
import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import { readTimeoutMs } from "./timeout_header.ts";

Deno.test("X-Gateway-Timeout is a number of seconds above 0", async (t) => {
  const cases = [
    { text: undefined, timeoutMs: Infinity },
    { text: "30", timeoutMs: 30_000 },
    { text: "1.5", timeoutMs: 1_500 },
    { text: "0.001", timeoutMs: 1 },
    { text: "9999999.999", timeoutMs: 9_999_999_999 },
    { text: "", timeoutMs: null },
    { text: "0", timeoutMs: null },
    { text: "0.000", timeoutMs: null },
    { text: "0.0001", timeoutMs: null },
    { text: "-1", timeoutMs: null },
    { text: "10000000", timeoutMs: null },
    { text: "1e3", timeoutMs: null },
    { text: "30s", timeoutMs: null },
    { text: "30, 40", timeoutMs: null },
    { text: "Infinity", timeoutMs: null },
  ];
  for (const { text, timeoutMs } of cases) {
    await t.step(`${text}`, () => {
      const headers = { "x-gateway-timeout": text };
      if (timeoutMs !== null) {
        assert.equal(readTimeoutMs(headers), timeoutMs);
        return;
      }
      assert.throws(() => readTimeoutMs(headers), (error) => {
        assert(error instanceof ApiError);
        assert.equal(error.code, "invalid_value");
        assert(error.message.includes(`'${text}'`));
        return true;
      });
    });
  }
});
