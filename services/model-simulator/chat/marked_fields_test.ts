// What DSPy asks for: fields between marks, or JSON whose values are notes.
import assert from "node:assert/strict";
import { startTestSimulator } from "../ask_fixture.ts";

/** The prompts are those of DSPy 3.4.1 for a signature with these fields. */
const NOTES = {
  name: "",
  age: "must be a single int value",
  happy: "must be True or False",
  kind: "must exactly match (no extra characters) one of: cat; wild dog",
  tags:
    'must adhere to the JSON schema: {"type": "array", "items": {"type": "string"}}',
};
const STRUCTURE =
  "All interactions will be structured in the following way, with the appropriate values filled in.";
const shown = (name: string, note: string) =>
  `{${name}}${note && `        # note: the value you produce ${note}`}`;
const marked = Object.entries(NOTES)
  .map(([name, note]) => `[[ ## ${name} ## ]]\n${shown(name, note)}`);
const OF_MARKS = [
  "Your input fields are:\n1. `text` (str):",
  STRUCTURE,
  "[[ ## text ## ]]\n{text}",
  ...marked,
  "[[ ## completed ## ]]\nIn adhering to this structure, your objective is: \n        Say who it is.",
].join("\n\n");
const example = Object.fromEntries(
  Object.entries(NOTES).map(([name, note]) => [name, shown(name, note)]),
);
const OF_JSON = [
  STRUCTURE,
  "Inputs will have the following structure:\n\n[[ ## text ## ]]\n{text}",
  "Outputs will be a JSON object with the following fields.",
  JSON.stringify(example, null, 2),
].join("\n\n");
const INPUT = "[[ ## text ## ]]\nAda is 36 and has a wild dog.\n\n";
const ASKS_FOR_MARKS =
  `${INPUT}Respond with the corresponding output fields, starting with the field \`[[ ## name ## ]]\`, then \`[[ ## age ## ]]\` (must be formatted as a valid Python int), then \`[[ ## happy ## ]]\` (must be formatted as a valid Python bool), then \`[[ ## kind ## ]]\`, then \`[[ ## tags ## ]]\` (must be formatted as a valid Python list[str]), and then ending with the marker for \`[[ ## completed ## ]]\`.`;
const ASKS_FOR_JSON =
  `${INPUT}Respond with a JSON object in the following order of fields: \`name\`, then \`age\` (must be formatted as a valid Python int), then \`happy\` (must be formatted as a valid Python bool), then \`kind\`, then \`tags\` (must be formatted as a valid Python list[str]).`;

const turns = (system: string, user: string) => [
  { role: "system", content: system },
  { role: "user", content: user },
];

Deno.test("the simulator writes fields with the marks that a prompt shows", async () => {
  await using simulator = startTestSimulator();
  const messages = turns(OF_MARKS, ASKS_FOR_MARKS);
  const text = await simulator.text({ messages });
  assert.match(
    text,
    /^\[\[ ## name ## \]\]\nAda\n\n\[\[ ## age ## \]\]\n36\n\n\[\[ ## happy ## \]\]\n(True|False)\n\n\[\[ ## kind ## \]\]\nwild dog\n\n\[\[ ## tags ## \]\]\n\["[^\n]*"\]\n\n\[\[ ## completed ## \]\]$/,
  );
});

Deno.test("the simulator follows notes about the values of JSON", async () => {
  await using simulator = startTestSimulator();
  const text = await simulator.text({
    messages: turns(OF_JSON, ASKS_FOR_JSON),
    response_format: { type: "json_object" },
  });
  const { happy, tags, ...rest } = JSON.parse(text);
  assert.deepEqual(rest, { name: "Ada", age: 36, kind: "wild dog" });
  assert.equal(typeof happy, "boolean");
  assert.ok(Array.isArray(tags) && typeof tags[0] === "string");
});

Deno.test("a schema in the question gives no values, as Genkit's plugin writes it", async () => {
  await using simulator = startTestSimulator();
  const schema = {
    type: "object",
    properties: { name: { type: "string" }, age: { type: "number" } },
    required: ["name", "age"],
    $schema: "http://json-schema.org/draft-07/schema#",
  };
  const messages = [
    { role: "user", content: "Make a person named Ada, aged 36." },
    {
      role: "user",
      content:
        "Output should be in JSON format and conform to the following schema:\n\n" +
        `\`\`\`\n${JSON.stringify(schema)}\n\`\`\`\n`,
    },
  ];
  for (const type of ["json_object", "json_schema"]) {
    const json_schema = { name: "output", schema };
    const text = await simulator.text({
      messages,
      response_format: { type, ...type === "json_schema" && { json_schema } },
    });
    assert.deepEqual(JSON.parse(text), { name: "Ada", age: 36 });
  }
});

Deno.test("marks that no sentence asks for are text", async () => {
  await using simulator = startTestSimulator();
  const text = await simulator.text({ prompt: "What is [[ ## name ## ]]?" });
  assert.match(text, /model simulator/);
});
