import assert from "node:assert/strict";
import { UNLIMITED } from "@gateway/shared/keys/record";
import { LIMIT_PATTERN, newForm, parseKeyForm } from "./key_form.ts";

const NOW_MS = Date.UTC(2026, 10, 20);

/** The limit that a field with this text gives; null when it is refused. */
function limitOf(rpm: string): number | null {
  const parsed = parseKeyForm(
    { ...newForm(UNLIMITED), description: "A key", rpm },
    NOW_MS,
    null,
  );
  return parsed.ok ? parsed.settings.limits.requestsPerMinute : null;
}

Deno.test("a limit may be grouped as anywhere in the world, and is never read as another number", async (t) => {
  const cases: [typed: string, limit: number | null][] = [
    ["", 0],
    ["  ", 0],
    ["0", 0],
    ["60", 60],
    [" 10000 ", 10_000],
    ["10,000", 10_000],
    ["10.000", 10_000],
    ["10 000", 10_000],
    ["10\u202F000", 10_000],
    ["10'000", 10_000],
    ["10’000", 10_000],
    ["1,000,000", 1_000_000],
    ["1.5", null],
    ["1,5", null],
    ["10,00", null],
    ["1000,000", null],
    ["10,0000", null],
    ["10,,000", null],
    [",000", null],
    ["1e3", null],
    ["-1", null],
    ["+1", null],
    ["0x10", null],
    ["١٠", null],
  ];
  for (const [typed, limit] of cases) {
    await t.step(JSON.stringify(typed), () => {
      assert.equal(limitOf(typed), limit);
    });
  }
});

Deno.test("the browser's pattern for limits is a valid one", () => {
  // What browsers do with the attribute: whole text, flag v.
  const pattern = new RegExp(`^(?:${LIMIT_PATTERN})$`, "v");
  assert.ok(pattern.test("10,000") && !pattern.test("1.5"));
});
