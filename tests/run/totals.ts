/** What test runs came to, added up for people and for `.ci/run`. */

/** The outcome of the tests of a run, each counted once. */
export interface TestTotals {
  readonly passed: number;
  /** `FILE > NAME` of each test that failed, twice where it ran twice. */
  readonly failed: readonly string[];
  /** `FILE > NAME` of each test that failed first and passed when it ran again. */
  readonly flaky: readonly string[];
}

/** A run of no tests. */
export const NO_TESTS: TestTotals = { passed: 0, failed: [], flaky: [] };

/** Returns the sum of two runs of different tests. */
export function addTotals(one: TestTotals, other: TestTotals): TestTotals {
  return {
    passed: one.passed + other.passed,
    failed: [...one.failed, ...other.failed],
    flaky: [...one.flaky, ...other.flaky],
  };
}

/**
 * Returns the lines that end a run: `Failed: FILE > NAME` and `Flaky: FILE > NAME` for
 * each such test, then `N passed, N failed`. `.ci/run` reads them from the file that
 * `TEST_TOTALS` names.
 */
export function totalLines({ passed, failed, flaky }: TestTotals): string[] {
  return [
    ...failed.map((test) => `Failed: ${test}`),
    ...flaky.map((test) => `Flaky: ${test}`),
    `${passed} passed, ${failed.length} failed`,
  ];
}
