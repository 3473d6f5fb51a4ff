import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { encodeQr } from "./qr.ts";

const digestOf = (text: string) =>
  createHash("sha256").update(
    (encodeQr(text) ?? []).map((row) => row.map(Number).join("")).join("\n"),
  ).digest("hex").slice(0, 16);

Deno.test("encodeQr() gives the codes that a scanner read back", async (t) => {
  // Each was read back as its text by zbarimg 0.23 when this was written.
  const cases: [text: string, size: number, digest: string][] = [
    ["HELLO", 21, "71bc9ab3ffcaa0d2"],
    [
      "otpauth://totp/Gateway:ada%40example.org?secret=ABCDEFGHIJKLMNOPQRSTUVWXYZ234567&issuer=Gateway",
      41,
      "6c6716d83a065949",
    ],
    ["x".repeat(213), 57, "f8a692e420006d88"],
  ];
  for (const [text, size, digest] of cases) {
    await t.step(`${text.length} characters`, () => {
      assert.equal(encodeQr(text)?.length, size);
      assert.equal(digestOf(text), digest);
    });
  }
});

Deno.test("encodeQr() takes 213 bytes and no more", () => {
  assert.notEqual(encodeQr("x".repeat(213)), null);
  assert.equal(encodeQr("x".repeat(214)), null);
  assert.equal(encodeQr("é".repeat(107)), null);
});
