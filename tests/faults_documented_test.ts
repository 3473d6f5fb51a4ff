/** Guarantee: existing tests show the failures of docs/faults.md. */
import assert from "node:assert/strict";

const ROOT = new URL("..", import.meta.url);
/** `tests/a_test.ts`: part of a title; several are separated by semicolons. */
const SHOWN = /`([^`]+_test\.ts)`: ([^;|]+)/g;

const page = await Deno.readTextFile(new URL("docs/faults.md", ROOT));

Deno.test("docs/faults.md names tests that exist", async () => {
  const missing: string[] = [];
  let named = 0;
  for (const [, file = "", title = ""] of page.matchAll(SHOWN)) {
    named += 1;
    const text = await Deno.readTextFile(new URL(file, ROOT));
    if (!text.includes(title.trim())) missing.push(`${file}: ${title.trim()}`);
  }
  assert.deepEqual(missing, []);
  assert.ok(named > 50, `only ${named}`);
});

Deno.test("docs/faults.md names a test for each failure", () => {
  const rows = page.split("\n").filter((line) => /^\| [a-z0-9]/.test(line));
  const bare = rows.filter((row) =>
    !row.includes("_test.ts`") && !row.includes("see below") &&
    !row.startsWith("| what fails")
  );
  assert.deepEqual(bare, []);
});
