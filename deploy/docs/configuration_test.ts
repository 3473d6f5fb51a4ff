import assert from "node:assert/strict";
import { withConfiguration } from "./configuration.ts";

const PAGE = new URL("../../docs/operating.md", import.meta.url);

Deno.test("docs/operating.md lists the current variables (else: deno task docs)", async () => {
  const page = await Deno.readTextFile(PAGE);
  assert.equal(page, withConfiguration(page));
});

Deno.test("withConfiguration() refuses a page without a place for the tables", () => {
  assert.throws(() => withConfiguration("# Operating"), /no place/);
});
