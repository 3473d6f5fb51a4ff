// The house rules: what each finds, and what it leaves alone.
import assert from "node:assert/strict";
import plugin from "./house.ts";

interface Row {
  rule: string;
  source: string;
  /** How often the rule is broken. */
  count: number;
  /** Default `file.ts`. */
  file?: string;
}

const long = "a".repeat(101);
const lines = (count: number) => "  work();\n".repeat(count);

/** A class in whose method statements stand. */
const inMethod = (statements: string) => `class A { m() { ${statements} } }`;

const ROWS: readonly Row[] = [
  {
    rule: "no-spread-literal",
    source: "const a = { ...{ b, c }, ...[d] };",
    count: 2,
  },
  {
    rule: "no-spread-literal",
    source: `const a = [...["b", "c"] as const];`,
    count: 1,
  },
  {
    rule: "no-spread-literal",
    source: "const a = { ...b, ...c && { d }, ...[e].map(f), ...(g ? h : i) };",
    count: 0,
  },
  {
    rule: "no-spread-literal",
    source: "const a = { ...(b ? { c } : {}), ...(d ? { e } : { f }) };",
    count: 2,
  },
  {
    rule: "no-spread-literal",
    source:
      "const a = Object.assign({ b }, { c }); Object.assign(d, { e }, { f });",
    count: 2,
  },
  {
    rule: "no-spread-literal",
    source:
      "Object.assign(a, b); Object.assign(a, { b }); Object.assign({}, ...c);",
    count: 0,
  },
  { rule: "no-assignment-in-expression", source: "a ??= b = c;", count: 1 },
  {
    rule: "no-assignment-in-expression",
    source: "const f = () => a = b; f(a += 1); void (a = b);",
    count: 3,
  },
  {
    rule: "no-assignment-in-expression",
    source: "a = b; c += 1; for (a = 0; a < 9; a += 2) work(); ({ a } = b);",
    count: 0,
  },
  { rule: "max-parameters", source: "function f(a, b, c) {}", count: 0 },
  { rule: "max-parameters", source: "function f(a, b, c, d) {}", count: 1 },
  {
    rule: "max-parameters",
    source: "class A { constructor(a, b, c, d) {} }",
    count: 1,
  },
  {
    rule: "max-parameters",
    source: "function f(this: A, a: B, b: C, { c, d, e }: D) {}",
    count: 0,
  },
  {
    rule: "named-columns",
    source: "for (const [a, b, c] of rows) f(a);",
    count: 1,
  },
  {
    rule: "named-columns",
    source: "for (const [a, b] of c) f(a); for (const { d, e, f } of g) h(d);",
    count: 0,
  },
  {
    rule: "max-function-lines",
    source: `function f() {\n${lines(58)}}`,
    count: 0,
  },
  {
    rule: "max-function-lines",
    source: `function f() {\n${lines(59)}}`,
    count: 1,
  },
  {
    rule: "max-function-lines",
    source: `function Page() {\n${lines(98)}}`,
    count: 0,
    file: "page.tsx",
  },
  {
    rule: "max-function-lines",
    source: `function Page() {\n${lines(99)}}`,
    count: 1,
    file: "page.tsx",
  },
  {
    rule: "documented-export",
    source: "/** The answer. */\nexport const answer = 42;",
    count: 0,
  },
  {
    rule: "documented-export",
    source: "/** The file. */\nconst a = 1;\nexport const answer = 42;",
    count: 1,
  },
  {
    rule: "documented-export",
    source: "// The answer.\nexport type Answer = 42;",
    count: 1,
  },
  {
    rule: "documented-export",
    source: "export { answer } from './answer.ts';",
    count: 0,
  },
  {
    rule: "namespace-name",
    source: `import * as env from "../process/env.ts";
      import * as logNats from "@gateway/shared/kept/log_nats";
      import * as files from "./files_fixture.ts";`,
    count: 0,
  },
  {
    rule: "namespace-name",
    source: `import * as read from "../process/env.ts";
      import * as z from "zod";`,
    count: 2,
  },
  {
    rule: "no-boolean-argument",
    source: "f(a, { b: true }); assert.equal(a, true, b);" +
      " view.getUint16(0, true); socket.setNoDelay(true);",
    count: 0,
  },
  {
    rule: "no-boolean-argument",
    source: "f(a, false, true); start(true);",
    count: 3,
  },
  {
    rule: "noun-name",
    source: "const answer = a.of(1); const row = { told: 1 }; use(row.told);",
    count: 0,
  },
  {
    rule: "noun-name",
    source: "const [of, { a: said }] = f(b, (given = 1) => given);" +
      " class A { #known = 1; told(...asked) {} } type Told = string;",
    count: 7,
  },
  {
    rule: "reaches-through",
    source: inMethod(
      "f(this.#run.dispatcher.options.bus); this.#a.b?.c.d(); this.a.b.c.d = 1;",
    ),
    count: 3,
  },
  {
    rule: "reaches-through",
    source: inMethod(
      "const { options } = this.#run.dispatcher; options.bus;" +
        " const { a: { b: { c } } } = this.#d; const { e = {} } = this.#f.g.h;" +
        " const bus = options; list.map((each) => bus.publish(each));",
    ),
    count: 4,
  },
  {
    rule: "reaches-through",
    source: inMethod(
      "this.#options.log.warn(a); this.#a.b().c.d.e(); this.#rows[0].a.b.c();" +
        " const { bus } = this.#options; bus.publish(this.#a.b.c);" +
        " const { d, ...rest } = this.#e; rest.f.g.h(); other.a.b.c.d();",
    ),
    count: 0,
  },
  {
    rule: "reaches-through",
    source: inMethod(
      "const { log } = this.#a.b; list.map((log) => log.c.d());" +
        " try { work(); } catch (log) { log.c.d(); }" +
        " { const log = this.#log; log.c.d(); }" +
        " let at = this.#a.b; at = at.next; at.c.d();",
    ),
    count: 0,
  },
  {
    rule: "test-title",
    source: `Deno.test("${"a".repeat(100)}", () => {}); of("${long}");`,
    count: 0,
  },
  {
    rule: "test-title",
    source: `Deno.test("${long}", () => {}); t.step(\`${long}\`, () => {});` +
      ` test("${long}", () => {}); Deno.test({ name: "${long}", fn() {} });`,
    count: 4,
  },
];

Deno.test("each house rule finds what breaks it, and nothing else", () => {
  for (const { rule, source, count, file = "file.ts" } of ROWS) {
    const found = Deno.lint.runPlugin(plugin, file, source)
      .filter(({ id }) => id === `house/${rule}`);
    assert.equal(found.length, count, `${rule}: ${source.slice(0, 80)}`);
  }
});
