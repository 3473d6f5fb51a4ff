/** Redis scripts: they parse, name nothing undefined, and luacheck finds no fault. */
import assert from "node:assert/strict";
import { parse } from "luaparse";
import { z } from "zod";
import { canRun, leaveOut, runProcess } from "./support/process.ts";
import { readSources } from "./support/repository/source_files.ts";

/** What Redis gives a script, of what our scripts use. */
const LUA_NAMES = new Set(
  ("ARGV KEYS redis struct cjson math string table error ipairs pairs " +
    "tonumber tostring type unpack").split(" "),
);
const LINE_CHARS_MAX = 100;
const FUNCTION_LINES_MAX = 100;
const PARAMETERS_MAX = 3;
const PRODUCTION = /(?<!_test|_fixture)\.tsx?$/;
const scripts = readSources(["services", "shared"], /\.lua$/);

/** The constants that a script says it is given. `defineScript` puts them before it. */
function constantsOf(text: string): string[] {
  const [, list = ""] = /^-- Constants:((?:[^\n]|\n-- (?=[A-Z]))*)$/m
    .exec(text) ?? [];
  return list.match(/\b[A-Z][A-Z_]+\b/g) ?? [];
}

const chunkSchema = z.object({
  globals: z.array(z.object({ name: z.string() })),
});

/** Names that are read or written without being defined. Throws where it is not Lua. */
function undefinedIn(text: string): string[] {
  const chunk = parse(text, { luaVersion: "5.1", scope: true });
  const { globals } = chunkSchema.parse(chunk);
  return [...new Set(globals.map(({ name }) => name))];
}

const functionSchema = z.object({
  type: z.literal("FunctionDeclaration"),
  parameters: z.array(z.unknown()),
  loc: z.object({
    start: z.object({ line: z.int() }),
    end: z.object({ line: z.int() }),
  }),
});

/** The first lines of functions that are longer, or take more, than a reader likes. */
function largeFunctionsIn(text: string): number[] {
  const lines: number[] = [];
  parse(text, {
    luaVersion: "5.1",
    locations: true,
    onCreateNode(node: unknown) {
      const { data } = functionSchema.safeParse(node);
      if (data === undefined) return;
      const { parameters, loc: { start, end } } = data;
      const isLong = end.line - start.line >= FUNCTION_LINES_MAX;
      if (isLong || parameters.length > PARAMETERS_MAX) lines.push(start.line);
    },
  });
  return lines;
}

Deno.test("a name that is misspelt is found", () => {
  assert.deepEqual(undefinedIn("local now = 1 return nwo"), ["nwo"]);
});

Deno.test("a function that is too long or takes too much is found", () => {
  const long = `local function f()${"\n".repeat(FUNCTION_LINES_MAX)}end`;
  assert.deepEqual(largeFunctionsIn(long), [1]);
  assert.deepEqual(largeFunctionsIn("return function(a, b, c, d) end"), [1]);
  assert.deepEqual(largeFunctionsIn("return function(a, b, c) end"), []);
});

for (const { path, text } of scripts) {
  Deno.test(`${path} parses, defines all that it names, and is readable`, () => {
    const constants = constantsOf(text);
    const names = undefinedIn(text).filter((name) => !LUA_NAMES.has(name));
    assert.deepEqual(names.sort(), constants.sort());
    const long = text.split("\n").filter((line) =>
      line.length > LINE_CHARS_MAX
    );
    assert.deepEqual(long, []);
    assert.deepEqual(largeFunctionsIn(text), [], "lines of large functions");
    assert.match(text, /^-- /, "begins with what it does");
  });
}

if (await canRun("luacheck", "--version")) {
  Deno.test("luacheck finds no fault in the scripts", async () => {
    const cwd = new URL("..", import.meta.url);
    const paths = scripts.map(({ path }) => path);
    await runProcess("luacheck", ["--no-color", ...paths], { cwd });
  });
} else leaveOut("faults in Lua that only a linter finds", "luacheck");

Deno.test("no TypeScript has a script in a template string", () => {
  const embedded = readSources(["services", "shared"], PRODUCTION)
    .filter(({ text }) => /\bredis\.call\(/.test(text));
  assert.deepEqual(embedded.map(({ path }) => path), []);
});
