import assert from "node:assert/strict";
import { randomFrom } from "../sampling/random.ts";
import { formatOf } from "./formats.ts";

const CASES: [format: string, valid: string[], invalid: string[]][] = [
  ["date", ["2026-02-28", "2024-02-29"], [
    "2026-02-29",
    "2026-13-01",
    "26-1-1",
  ]],
  ["time", ["09:30:00Z", "23:59:60Z", "00:00:00+01:00"], [
    "24:00:00Z",
    "09:30",
  ]],
  [
    "date-time",
    ["2026-03-14T09:30:00Z", "2026-03-14t09:30:00.123-05:00"],
    ["2026-03-14", "2026-03-14T09:30", "2026-02-30T00:00:00Z"],
  ],
  ["duration", ["P1D", "PT5M", "P1Y2M3DT4H"], ["P", "PT", "5M", "P1DT"]],
  ["email", ["ada@example.com"], ["ada", "@example.com", "a b@example.com"]],
  ["uri", ["https://example.com/a?b#c", "mailto:a@b.c"], [
    "example.com",
    "a b:c",
  ]],
  ["uuid", ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567", ""]],
  ["hostname", ["example.com", "a"], ["-a.com", "a..b", "a_b", "a".repeat(64)]],
  ["ipv4", ["192.0.2.1", "0.0.0.0"], ["256.0.0.1", "1.2.3", "1.2.3.4.5"]],
  ["ipv6", ["2001:db8::1", "::", "1:2:3:4:5:6:7:8"], ["1::2::3", "1:2", ":::"]],
];

for (const [name, valid, invalid] of CASES) {
  Deno.test(`the format ${name} is told from others, and written`, () => {
    const format = formatOf(name);
    assert.ok(format);
    for (const text of valid) assert.ok(format.matches(text), text);
    for (const text of invalid) assert.equal(format.matches(text), false, text);
    const random = randomFrom(name);
    for (let round = 0; round < 50; round++) {
      const text = format.write(random);
      assert.ok(format.matches(text), text);
    }
  });
}

Deno.test("an unknown format is none", () => {
  assert.equal(formatOf("made-up"), undefined);
  assert.equal(formatOf(7), undefined);
});
