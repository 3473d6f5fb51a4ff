// Promise: an amount is the number that was written, to the billionth, or a clear
// error.
import assert from "node:assert/strict";
import { seededRandom } from "../../tests/support/seeded_random.ts";
import { formatAmount, parseAmount } from "./amount.ts";

const READ: readonly { text: string; nanos: number }[] = [
  { text: "0", nanos: 0 },
  { text: "2.50", nanos: 2_500_000_000 },
  { text: "0.000000001", nanos: 1 },
  { text: "0.0375000000000", nanos: 37_500_000 },
  { text: "007", nanos: 7_000_000_000 },
  { text: "9007199.254740991", nanos: Number.MAX_SAFE_INTEGER },
];

Deno.test("parseAmount() reads decimals exactly", () => {
  for (const { text, nanos } of READ) {
    assert.equal(parseAmount(text), nanos, text);
  }
});

/** Numbers elsewhere, but no amounts. */
const WRONG_FORMS = [
  "",
  " 1",
  "1 ",
  "1e3",
  ".5",
  "5.",
  "+1",
  "1,5",
  "1_000",
  "0x1",
  "NaN",
];
const REFUSED: readonly { text: string; fault: string }[] = [
  ...WRONG_FORMS.map((text) => ({ text, fault: "form" })),
  { text: "٣", fault: "form" },
  { text: "1".repeat(41), fault: "form" },
  { text: "-1", fault: "negative" },
  { text: "-0", fault: "negative" },
  { text: "0.0000000001", fault: "precise" },
  { text: "9007199.254740992", fault: "large" },
  { text: "1".repeat(40), fault: "large" },
];

Deno.test("parseAmount() says why a text is no amount", () => {
  for (const { text, fault } of REFUSED) {
    assert.equal(parseAmount(text), fault, text);
  }
});

Deno.test("formatAmount() writes what parseAmount() reads", () => {
  assert.equal(formatAmount(2_500_000_000), "2.5");
  assert.equal(formatAmount(-1), "-0.000000001");
  assert.equal(formatAmount(0), "0");
  const random = seededRandom(1);
  for (let run = 0; run < 2_000; run += 1) {
    const nanos = Math.floor(random() ** 4 * Number.MAX_SAFE_INTEGER);
    assert.equal(parseAmount(formatAmount(nanos)), nanos);
  }
});
