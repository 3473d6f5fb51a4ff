// Arguments of a tool call that come twice, or after an empty object.
import assert from "node:assert/strict";
import { ArgumentsRepair } from "./arguments_repair.ts";

const ROWS: readonly {
  fragments: string[];
  passed: string;
  repairs: number;
}[] = [
  { fragments: ['{"q":', "1}"], passed: '{"q":1}', repairs: 0 },
  { fragments: ["{", '"q":', "1", "}"], passed: '{"q":1}', repairs: 0 },
  { fragments: ["{}"], passed: "{}", repairs: 0 },
  { fragments: ["{}", '{"q":1}'], passed: '{"q":1}', repairs: 1 },
  { fragments: ["{}", '{"q":', "1}"], passed: '{"q":1}', repairs: 1 },
  { fragments: ['{"q":', '{"q":1}'], passed: '{"q":1}', repairs: 1 },
  {
    fragments: ['{"q":', '{"q":1', '{"q":1}'],
    passed: '{"q":1}',
    repairs: 1,
  },
  { fragments: ['{"q":', "1}", '{"q":1}'], passed: '{"q":1}', repairs: 1 },
  { fragments: ['{"q":1}', '{"q":1}'], passed: '{"q":1}', repairs: 1 },
  // An object within the object repeats nothing.
  {
    fragments: ['{"q":', '{"q":1}', "}"],
    passed: '{"q":{"q":1}}',
    repairs: 0,
  },
  {
    fragments: ['{"q":', '{"q":', "1}", "}"],
    passed: '{"q":{"q":1}}',
    repairs: 0,
  },
  { fragments: ['{"q":', '{"q":1}}'], passed: '{"q":{"q":1}}', repairs: 0 },
  // What cannot be undone passes as it came.
  { fragments: ['{"q":1', '{"q":'], passed: '{"q":1{"q":', repairs: 0 },
];

Deno.test("ArgumentsRepair passes on each part of the arguments once", () => {
  for (const { fragments, passed, repairs } of ROWS) {
    const repair = new ArgumentsRepair();
    const parts = fragments.map((fragment) => repair.take(fragment));
    assert.equal([...parts, repair.end()].join(""), passed, fragments.join());
    assert.equal(repair.count, repairs, fragments.join());
  }
});
