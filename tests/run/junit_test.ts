// Promise: the tests of a report are read with their names and outcomes, whatever
// their names contain, and their steps are not counted as tests.
import assert from "node:assert/strict";
import { parseJUnit } from "./junit.ts";

/** As Deno 2.9 writes it. */
const REPORT = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="deno test" tests="6" failures="2" errors="1" time="0.173">
    <testsuite name="./a_test.ts" tests="4" disabled="0" errors="0" failures="2">
        <testcase name="a &lt; b &amp;&amp; &quot;c&quot;" classname="./a_test.ts" time="0.003" line="2" col="6">
            <failure message="1 test step failed">1 test step failed.</failure>
        </testcase>
        <testcase name="a > b" classname="./a_test.ts" time="0.001" line="3" col="6">
        </testcase>
        <testcase name="a &lt; b &amp;&amp; &quot;c&quot; &gt; step" classname="./a_test.ts" time="0.001" line="2" col="49">
            <failure message="Uncaught Error">Error: &lt;/testcase&gt;</failure>
        </testcase>
    </testsuite>
    <testsuite name="./b_test.ts" tests="2" disabled="1" errors="1" failures="0">
        <testcase name="ignored" classname="./b_test.ts" time="0.000" line="1" col="6">
            <skipped/>
        </testcase>
        <testcase name="cancelled" classname="./b_test.ts" time="0.000" line="5" col="10">
            <error message="Cancelled"/>
        </testcase>
    </testsuite>
</testsuites>
`;

Deno.test("parseJUnit() reads each test with its outcome, and no steps", () => {
  assert.deepEqual(parseJUnit(REPORT), [
    { file: "./a_test.ts", name: 'a < b && "c"', outcome: "failed" },
    { file: "./a_test.ts", name: "a > b", outcome: "passed" },
    { file: "./b_test.ts", name: "ignored", outcome: "skipped" },
    { file: "./b_test.ts", name: "cancelled", outcome: "cancelled" },
  ]);
});

Deno.test("parseJUnit() finds no tests in an empty report", () => {
  assert.deepEqual(parseJUnit("<testsuites></testsuites>"), []);
});
