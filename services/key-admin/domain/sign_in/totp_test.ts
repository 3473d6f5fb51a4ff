import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { mintTotpSecret, totpCode, totpStep, totpUri } from "./totp.ts";

/** "12345678901234567890" in base32: the secret of RFC 6238, appendix B. */
const SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

Deno.test("totpCode() returns the codes of RFC 6238, appendix B", async (t) => {
  const vectors: [seconds: number, code: string][] = [
    [59, "287082"],
    [1_111_111_109, "081804"],
    [1_111_111_111, "050471"],
    [1_234_567_890, "005924"],
    [2_000_000_000, "279037"],
    [20_000_000_000, "353130"],
  ];
  for (const [seconds, code] of vectors) {
    await t.step(String(seconds), () => {
      assert.equal(totpCode(SECRET, Math.floor(seconds / 30)), code);
    });
  }
});

Deno.test("totpStep() accepts the previous, the current and the next step", () => {
  const nowMs = 1_111_111_111_000;
  const current = Math.floor(nowMs / 30_000);
  for (const [off, isTaken] of [[-2, 0], [-1, 1], [0, 1], [1, 1], [2, 0]]) {
    const step = current + (off ?? 0);
    const code = totpCode(SECRET, step);
    const found = totpStep(SECRET, code, nowMs);
    assert.equal(found, isTaken === 1 ? step : null, `${off}`);
  }
  assert.equal(totpStep(SECRET, "", nowMs), null);
  assert.equal(totpStep(SECRET, "abcdef", nowMs), null);
});

Deno.test("a new secret has 160 bits and is readable by apps", () => {
  const secret = mintTotpSecret(randomBytes);
  assert.match(secret, /^[A-Z2-7]{32}$/);
  assert.match(totpCode(secret, 1), /^\d{6}$/);
  assert.equal(
    totpUri(SECRET, "a&b@example.org", "Gateway"),
    `otpauth://totp/Gateway:a%26b%40example.org?secret=${SECRET}&issuer=Gateway`,
  );
});
