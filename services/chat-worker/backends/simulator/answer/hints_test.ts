import assert from "node:assert/strict";
import { createHints, type MessageFacts, readFacts } from "./hints.ts";

const CASES: [message: string, facts: Partial<MessageFacts>][] = [
  ["", { text: "", names: [], quoted: [], numbers: [] }],
  ["What's the weather in Paris?", { names: ["Paris"] }],
  ["Show me New York", { names: ["New York"] }],
  ["Is it raining in Boston, MA and San Francisco?", {
    names: ["Boston", "MA", "San Francisco"],
  }],
  ["Where is it raining?", { names: [] }],
  ["Paris", { names: ["Paris"] }],
  ["Alice and Bob meet on Friday", {
    names: ["Alice", "Bob", "Friday"],
    dates: ["Friday"],
  }],
  ["Zürich, São Paulo und Łódź", { names: ["Zürich", "São Paulo", "Łódź"] }],
  ["2 seats for -3.5 or 40%", { numbers: [2, -3.5, 40] }],
  ["in room A12 on 2026-03-14 at 14:30", {
    numbers: [],
    dates: ["2026-03-14"],
    times: ["14:30"],
    expressions: [],
  }],
  ["Write 'hello there' and \"bye\" to ada@example.com", {
    quoted: ["hello there", "bye"],
    emails: ["ada@example.com"],
  }],
  ["don't quote what isn't quoted", { quoted: [] }],
  ["see https://example.com/a?b=1 now", {
    urls: ["https://example.com/a?b=1"],
  }],
  ["what is 17 * (23 + 4)?", {
    numbers: [17, 23, 4],
    expressions: ["17 * (23 + 4)"],
  }],
];

for (const [message, expected] of CASES) {
  Deno.test(`readFacts() reads ${JSON.stringify(message)}`, () => {
    const facts = { ...readFacts(message) };
    for (const [name, value] of Object.entries(expected)) {
      assert.deepEqual(Object.entries(facts).find(([key]) => key === name), [
        name,
        value,
      ]);
    }
  });
}

Deno.test("readFacts() reads what stands after a preposition", () => {
  const flight = readFacts("fly from berlin to new york today for the summer");
  assert.equal(flight.after.get("from"), "berlin");
  assert.equal(flight.after.get("to"), "new york");
  assert.equal(flight.after.get("for"), "summer");
});

Deno.test("readFacts() takes little time for a hostile message", () => {
  const startMs = performance.now();
  for (
    const piece of [
      "1+",
      "(1",
      "'a",
      "A ",
      "in ",
      "a@a.",
      "http://",
      "to to ",
      "(((((1.1.1",
    ]
  ) {
    readFacts(piece.repeat(100_000));
  }
  assert.ok(performance.now() - startMs < 1000);
});

const LABELS: [message: string, label: string, first: string | undefined][] = [
  ["Weather in Paris", "city", "Paris"],
  ["weather in new york now", "location", "new york"],
  ["From Berlin to Rome", "origin", "Berlin"],
  ["From Berlin to Rome", "destination", "Rome"],
  ["write to ada@example.com", "email", "ada@example.com"],
  ["write to ada@example.com", "e mail", "ada@example.com"],
  ["open https://example.com", "url", "https://example.com"],
  ["on 2026-03-14", "start date", "2026-03-14"],
  ["at 14:30", "time", "14:30"],
  ["compute 2 + 2", "expression", "2 + 2"],
  ["search for cheap flights", "query", "cheap flights"],
  ["send 'see you'", "message", "see you"],
  ["what now?", "question", "what now?"],
  ["paint it 'dark red'", "shade", "dark red"],
  ["hello", "city", undefined],
  ["hello", "shade", undefined],
];

for (const [message, label, first] of LABELS) {
  Deno.test(`"${message}" gives ${first} for ${label}`, () => {
    assert.equal(createHints(readFacts(message)).texts(label, "")[0], first);
  });
}

Deno.test("a description helps where the name says nothing", () => {
  const hints = createHints(readFacts("How hot is it in Oslo?"));
  assert.deepEqual(hints.texts("q1", ""), []);
  assert.deepEqual(hints.texts("q1", "The city to look at"), ["Oslo"]);
});

Deno.test("what was taken is not offered again", () => {
  const hints = createHints(readFacts("2 or 3 nights in Paris or Rome"));
  hints.take("Paris");
  hints.take(2);
  assert.deepEqual(hints.texts("city", ""), ["Rome"]);
  assert.deepEqual(hints.numbers(), [3]);
});

Deno.test("mentions() is about whole words in any case", () => {
  const hints = createHints(readFacts("In Celsius, please, and top speed"));
  assert.ok(hints.mentions("celsius"));
  assert.ok(hints.mentions("TOP_SPEED".replace("_", " ")));
  assert.equal(hints.mentions("sius"), false);
  assert.equal(hints.mentions(""), false);
});
