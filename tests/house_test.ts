/**
 * The bounds that keep the repository small enough to understand. A change beyond
 * one of them has to remove something else.
 */
import assert from "node:assert/strict";
import { dirname } from "node:path/posix";
import type { SourceFile } from "./support/source_files.ts";
import { readSources, SOURCE_FOLDERS } from "./support/source_files.ts";

/** Lines of production code in each room, and in all. */
const ROOMS: { readonly [room: string]: number } = {
  "services/edge-auth": 5_920,
  "services/chat-worker": 835,
  "services/media-worker": 1_250,
  "services/key-admin": 9_005,
  "services/model-simulator": 1_935,
  "shared": 8_920,
  "deploy": 1_940,
};
const PRODUCTION_LINES_MAX = 29_800;
/** Tests and benchmarks. */
const TEST_LINES_MAX = 36_000;
/** Source files in one folder, tests included. */
const FILES_MAX = 25;

const TEST =
  /_test\.tsx?$|_fixture|_bench\.ts$|^tests\/|\/testing\/|^bench\/|compose_test|\/simulation\/|test_support/;
const files = readSources(SOURCE_FOLDERS, /\.(tsx?|js|css|lua|sh)$/);
const production = files.filter(({ path }) => !TEST.test(path));

function linesOf(some: readonly SourceFile[]): number {
  return some.reduce((sum, { text }) => sum + text.split("\n").length - 1, 0);
}

Deno.test("no room has more lines than its bound", () => {
  const over = Object.entries(ROOMS).flatMap(([room, bound]) => {
    const lines = linesOf(
      production.filter(({ path }) => path.startsWith(`${room}/`)),
    );
    return lines > bound ? [`${room}: ${lines} lines, bound ${bound}`] : [];
  });
  assert.deepEqual(over, []);
  const unknown = production.filter(({ path }) =>
    !Object.keys(ROOMS).some((room) => path.startsWith(`${room}/`))
  );
  assert.deepEqual(unknown.map(({ path }) => path), []);
});

Deno.test("production code, tests and benchmarks stay within their bounds", () => {
  const lines = linesOf(production);
  assert.ok(lines <= PRODUCTION_LINES_MAX, `production has ${lines} lines`);
  const others = files.filter(({ path }) =>
    TEST.test(path) && /\.(tsx?|sh)$/.test(path)
  );
  const tests = linesOf(others);
  assert.ok(tests <= TEST_LINES_MAX, `tests have ${tests} lines`);
});

Deno.test(`no folder has more than ${FILES_MAX} source files`, () => {
  const counts = new Map<string, number>();
  for (const { path } of files) {
    if (!/\.tsx?$/.test(path)) continue;
    counts.set(dirname(path), (counts.get(dirname(path)) ?? 0) + 1);
  }
  const full = [...counts].filter(([, count]) => count > FILES_MAX);
  assert.deepEqual(full, []);
});
