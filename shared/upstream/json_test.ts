/** What is parsed of the JSON of model servers, and what would cost too much. */
import assert from "node:assert/strict";
import { parseJson } from "./json.ts";

/** A valid array of `count` values, long enough to be looked at first. */
const listOf = (value: string, count: number) =>
  `[${Array<string>(count).fill(value).join()}]`.padEnd(20_000);

const nested = (levels: number) =>
  `${"[".repeat(levels)}${"]".repeat(levels)}`.padEnd(20_000);

const cases = [
  { name: "64 levels", text: nested(64), isParsed: true },
  { name: "65 levels", text: nested(65), isParsed: false },
  { name: "a million levels", text: nested(1_000_000), isParsed: false },
  { name: "399,999 lists", text: listOf("[]", 399_999), isParsed: true },
  { name: "400,000 lists", text: listOf("[]", 400_000), isParsed: false },
  { name: "2,000,001 numbers", text: listOf("1", 2_000_001), isParsed: true },
  { name: "2,000,002 numbers", text: listOf("1", 2_000_002), isParsed: false },
  {
    name: "brackets, commas and quotes within a string",
    text: JSON.stringify('[{,\\"'.repeat(500_000)),
    isParsed: true,
  },
  { name: "an open string", text: `"${"[".repeat(20_000)}`, isParsed: false },
];

for (const { name, text, isParsed } of cases) {
  Deno.test(`parseJson() ${isParsed ? "reads" : "refuses"} ${name}`, () => {
    assert.equal(parseJson(text) !== undefined, isParsed);
  });
}
