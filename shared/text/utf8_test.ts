/** UTF-8 without allocations. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { encodeBriefly, encodeUtf8, utf8Length } from "./utf8.ts";

const texts = [
  { name: "nothing", text: "" },
  { name: "one character", text: "a" },
  { name: "one character of four bytes", text: "\u{1f600}" },
  { name: "short ASCII", text: "a".repeat(64) },
  { name: "longer ASCII", text: "a".repeat(65) },
  { name: "short text of two bytes each", text: "\u00e9".repeat(64) },
  { name: "half of a surrogate pair", text: "a\ud83d" },
  {
    name: "text that fits the scratch space",
    text: "\u20ac".repeat(16 * 1024),
  },
  { name: "text that does not", text: "\u20ac".repeat(16 * 1024 + 1) },
];

for (const { name, text } of texts) {
  Deno.test(`UTF-8 of ${name} is the same as that of Buffer`, () => {
    const expected = Buffer.from(text).toString("hex");
    assert.equal(Buffer.from(encodeBriefly(text)).toString("hex"), expected);
    assert.equal(Buffer.from(encodeUtf8(text)).toString("hex"), expected);
    assert.equal(utf8Length(text), expected.length / 2);
  });
}

Deno.test("UTF-8 that may be kept survives the next text", () => {
  const bytes = encodeUtf8("first");
  encodeUtf8("other");
  assert.equal(new TextDecoder().decode(bytes), "first");
});
