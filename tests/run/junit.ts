/** Reads the JUnit reports that `deno test --junit-path` writes. */

/** What a test came to; `cancelled` if an error elsewhere ended its file. */
export type TestOutcome = "passed" | "failed" | "cancelled" | "skipped";

/** A test of a report. Its steps are none: a failed step fails its test. */
export interface TestCase {
  /** As it was given to deno, for example `./tests/tidy_test.ts`. */
  readonly file: string;
  readonly name: string;
  readonly outcome: TestOutcome;
}

const CASE =
  /<testcase name="([^"]*)" classname="([^"]*)"[^>]*?(?:\/>|>([\s\S]*?)<\/testcase>)/g;
const OUTCOMES: readonly { form: RegExp; outcome: TestOutcome }[] = [
  { form: /<failure\b/, outcome: "failed" },
  { form: /<error\b/, outcome: "cancelled" },
  { form: /<skipped\b/, outcome: "skipped" },
];
/** Stands between the name of a test and that of its step. */
const STEP = " > ";
const ENTITIES: { readonly [entity: string]: string } = {
  lt: "<",
  gt: ">",
  amp: "&",
  quot: '"',
  apos: "'",
};

/**
 * Returns the tests of a report in its order. A file that failed before its tests
 * were known is not in a report, nor is an error that no test caught.
 */
export function parseJUnit(xml: string): TestCase[] {
  const cases = [...xml.matchAll(CASE)].map(([, name, file, body = ""]) => ({
    file: unescape(file ?? ""),
    name: unescape(name ?? ""),
    outcome: OUTCOMES.find(({ form }) => form.test(body))?.outcome ?? "passed",
  }));
  const names = new Set(cases.map(({ file, name }) => `${file} ${name}`));
  return cases.filter(({ file, name }) => !isStep(names, file, name));
}

/** Whether the name begins with that of another test of the file. */
function isStep(names: ReadonlySet<string>, file: string, name: string) {
  let end = name.indexOf(STEP);
  while (end >= 0) {
    if (names.has(`${file} ${name.slice(0, end)}`)) return true;
    end = name.indexOf(STEP, end + 1);
  }
  return false;
}

function unescape(text: string): string {
  return text
    .replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(Number(code)))
    .replace(/&(\w+);/g, (entity, name) => ENTITIES[name] ?? entity);
}
