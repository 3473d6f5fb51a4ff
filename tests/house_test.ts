/**
 * Bounds on what a reader meets at once. What goes beyond one of them is divided by
 * idea: there is no bound on totals.
 */
import assert from "node:assert/strict";
import { dirname } from "node:path/posix";
import {
  readSources,
  SOURCE_FOLDERS,
} from "./support/repository/source_files.ts";

/** Source files in one folder, tests included. */
const FILES_MAX = 25;

const files = readSources(SOURCE_FOLDERS, /\.(tsx?|js|css|lua|sh)$/);

Deno.test(`no folder has more than ${FILES_MAX} source files`, () => {
  const counts = new Map<string, number>();
  for (const { path } of files) {
    if (!/\.tsx?$/.test(path)) continue;
    counts.set(dirname(path), (counts.get(dirname(path)) ?? 0) + 1);
  }
  const full = [...counts].filter(([, count]) => count > FILES_MAX);
  assert.deepEqual(full, []);
});
