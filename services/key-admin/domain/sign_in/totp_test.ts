import assert from "node:assert/strict";
import { totpStep } from "./totp.ts";

/** "12345678901234567890" in base32: the secret of RFC 6238, appendix B. */
const SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
/** A code of the appendix, and its step. */
const CODE = "081804";
const STEP = 37_037_036;

Deno.test("totpStep() accepts the code of RFC 6238, appendix B, in the step before, the current and the next one", () => {
  for (const off of [-2, -1, 0, 1, 2]) {
    const nowMs = (STEP + off) * 30_000 + 29_999;
    const found = Math.abs(off) < 2 ? STEP : null;
    assert.equal(totpStep(SECRET, CODE, nowMs), found, `${off}`);
    for (const wrong of ["", "abcdef", "81804"]) {
      assert.equal(totpStep(SECRET, wrong, nowMs), null, wrong);
    }
  }
});
