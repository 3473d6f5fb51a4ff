/** The values of `X-Gateway-Priority`. */
import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import { readIsBatch } from "./priority_header.ts";

Deno.test("X-Gateway-Priority is batch or normal, and nobody goes before others", () => {
  const cases = [
    { text: undefined, isBatch: false },
    { text: "normal", isBatch: false },
    { text: "batch", isBatch: true },
  ];
  for (const { text, isBatch } of cases) {
    assert.equal(readIsBatch({ "x-gateway-priority": text }), isBatch);
  }
  for (const text of ["", "high", "Batch", "batch, normal", "1"]) {
    assert.throws(
      () => readIsBatch({ "x-gateway-priority": text }),
      (error) => {
        assert(error instanceof ApiError);
        assert.equal(error.code, "invalid_value");
        return error.message.includes(`'${text}'`);
      },
    );
  }
});
