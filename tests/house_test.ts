/**
 * Bounds on what a reader meets at once. What goes beyond one of them is divided by
 * idea: there is no bound on totals. Those on functions and exports are rules of the
 * linter (`tests/lint/house.ts`).
 */
import assert from "node:assert/strict";
import { dirname } from "node:path/posix";
import { circlesOf } from "./support/repository/import_circles.ts";
import {
  readSources,
  SOURCE_FOLDERS,
  type SourceFile,
} from "./support/repository/source_files.ts";
import { filesImportedBy } from "./support/repository/source_imports.ts";

const FILE_LINES_MAX = 400;
/** A comment, perhaps after the line that names an interpreter. */
const BEGINNING = /^(#!.*\n)?\s*(\/\*|\/\/|--|#)/;
const COMMENT_COLUMNS_MAX = 88;
const COMMENT = /^\s*(\/\/|\/?\*|--) /;
/** What cannot wrap: a word that is a line of its own. */
const UNBROKEN = /^\s*(\/\/|\*|--) \S+$/;
const IMPORT = /^import [^;]*? from "([^"]+)"/gm;
/** Source files in one folder, tests included. */
const FOLDER_FILES_MAX = 25;
/** Tests may import everything, and stand beside what they test. */
const TEST = /_(test|fixture)\.tsx?$|^(tests|bench|deploy\/compose_test)\//;

const files = readSources(SOURCE_FOLDERS, /\.(tsx?|js|css|lua|sh)$/);
const code = files.filter(({ path }) => /\.tsx?$/.test(path));

Deno.test(`no file has more than ${FILE_LINES_MAX} lines`, () => {
  const long = files
    .map(({ path, text }) => ({ path, lines: text.split("\n").length - 1 }))
    .filter(({ lines }) => lines > FILE_LINES_MAX);
  assert.deepEqual(long, []);
});

Deno.test("every file begins with what it is", () => {
  const bare = files.filter(({ text }) => !BEGINNING.test(text));
  assert.deepEqual(bare.map(({ path }) => path), []);
});

Deno.test(`no comment has more than ${COMMENT_COLUMNS_MAX} columns`, () => {
  const wide = files.flatMap(({ path, text }) =>
    text.split("\n")
      .map((line, index) => ({ line, at: `${path}:${index + 1}` }))
      .filter(({ line }) => COMMENT.test(line) && !UNBROKEN.test(line))
      .filter(({ line }) => line.length > COMMENT_COLUMNS_MAX)
  );
  assert.deepEqual(wide, []);
});

Deno.test(`no folder has more than ${FOLDER_FILES_MAX} source files`, () => {
  const counts = new Map<string, number>();
  for (const { path } of code) {
    counts.set(dirname(path), (counts.get(dirname(path)) ?? 0) + 1);
  }
  const full = [...counts].filter(([, count]) => count > FOLDER_FILES_MAX);
  assert.deepEqual(full, []);
});

Deno.test("no file imports a module by two statements", () => {
  const twice = code.flatMap(({ path, text }) => {
    const modules = [...text.matchAll(IMPORT)].map(([, module]) => module);
    return modules.filter((module, at) => modules.indexOf(module) !== at)
      .map((module) => `${path}: ${module}`);
  });
  assert.deepEqual(twice, []);
});

Deno.test("no files import each other in a circle", () => {
  const imports = code.map((file) =>
    [file.path, new Set(filesImportedBy(file))] as const
  );
  assert.deepEqual(circlesOf(new Map(imports)), []);
});

Deno.test("no folders import each other in a circle", () => {
  const production = code.filter(({ path }) => !TEST.test(path));
  const tests = code.filter(({ path }) => path.startsWith("tests/"));
  assert.deepEqual(circlesOf(folderImports(production)), []);
  assert.deepEqual(circlesOf(folderImports(tests)), []);
});

/** Which of the folders of these files imports which others of them. */
function folderImports(
  among: readonly SourceFile[],
): Map<string, Set<string>> {
  const folders = new Map<string, Set<string>>();
  for (const { path } of among) folders.set(dirname(path), new Set());
  for (const file of among) {
    const from = dirname(file.path);
    for (const path of filesImportedBy(file)) {
      const to = dirname(path);
      if (to !== from && folders.has(to)) folders.get(from)?.add(to);
    }
  }
  return folders;
}
