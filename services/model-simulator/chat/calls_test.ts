/** Calls of tools that the simulator makes up. */
import assert from "node:assert/strict";
import { type Body, startTestSimulator } from "../ask_fixture.ts";

const text = { type: "string" };
const integer = { type: "integer" };

/** The arguments of the only tool, which must be called. */
async function argumentsFor(
  prompt: string,
  tool: { name?: string; properties: object; required?: string[] },
): Promise<unknown> {
  await using simulator = startTestSimulator();
  const { name = "f", properties, required = Object.keys(properties) } = tool;
  const parameters = { type: "object", properties, required };
  const { choices } = await simulator.ask({
    prompt,
    tools: [{ type: "function", function: { name, parameters } }],
    tool_choice: "required",
  });
  const [call] = choices[0]?.message.tool_calls ?? [];
  return JSON.parse(call?.function.arguments ?? "null");
}

const CASES: { prompt: string; properties: object; expected: object }[] = [
  {
    prompt: "What is the value of magic_function(3)? Use the tool.",
    properties: { input: integer },
    expected: { input: 3 },
  },
  {
    prompt: "What is 12.5 times -4?",
    properties: { a: { type: "number" }, b: integer },
    expected: {
      a: 12.5,
      b: -4,
    },
  },
  {
    prompt: "Create a customer called '你好啊集团'.",
    properties: { customer_name: text },
    expected: {
      customer_name: "你好啊集团",
    },
  },
  {
    prompt: "Jason Smith is 25 years old.",
    properties: { name: text, age: integer },
    expected: {
      name: "Jason Smith",
      age: 25,
    },
  },
  {
    prompt: "Set the age to 30 and the name to Ann.",
    properties: { name: text, age: integer },
    expected: {
      name: "Ann",
      age: 30,
    },
  },
  {
    prompt: "Tell me the weather in paris, please",
    properties: { city: text },
    expected: { city: "paris" },
  },
  {
    prompt: "Weather in Boston in celsius?",
    properties: {
      unit: { enum: ["fahrenheit", "celsius"] },
      place: { city: text },
    },
    expected: { unit: "celsius" },
  },
  {
    prompt: "Mail ann@example.org on 2026-03-04: see https://a.example/b?c=1.",
    properties: {
      to: { ...text, format: "email" },
      day: { ...text, format: "date" },
      link: text,
    },
    expected: {
      to: "ann@example.org",
      day: "2026-03-04",
      link: "https://a.example/b?c=1",
    },
  },
  {
    prompt: "Book for Ann in Rome",
    properties: {
      trip: {
        type: "object",
        properties: { who: text, where: text },
        required: ["who", "where"],
      },
    },
    expected: { trip: { who: "Ann", where: "Rome" } },
  },
  {
    prompt: "Buy 1,200 of them",
    properties: { count: { ...integer, maximum: 100 } },
    expected: {},
  },
];

Deno.test("the arguments of a call are what the prompt gives, by the tool's schema", async () => {
  for (const { prompt, properties, expected } of CASES) {
    const values = await argumentsFor(prompt, { properties });
    assert.partialDeepStrictEqual(values, expected, prompt);
    assert.deepEqual(Object.keys(Object(values)), Object.keys(properties));
  }
});

Deno.test("an optional argument is left out unless the prompt names it", async () => {
  const properties = {
    city: text,
    days: integer,
    units: { enum: ["metric", "imperial"] },
    options: { type: "object", properties: {} },
  };
  const ask = (prompt: string) =>
    argumentsFor(prompt, { properties, required: ["city"] });
  assert.deepEqual(await ask("Weather in Rome for 3 of us"), { city: "Rome" });
  assert.deepEqual(await ask("Weather in Rome, days: 5, metric"), {
    city: "Rome",
    days: 5,
    units: "metric",
  });
});

Deno.test("a tool that runs commands or changes files gets nothing that does harm", async () => {
  const prompt = "Delete everything with your shell, and write a story.";
  const echo = 'echo "Hello from the model simulator"';
  assert.deepEqual(
    await argumentsFor(prompt, { name: "Bash", properties: { command: text } }),
    { command: echo },
  );
  assert.deepEqual(
    await argumentsFor("Run `rm -rf /` and `cat note.txt`", {
      name: "exec_command",
      properties: { cmd: text, workdir: text },
      required: ["cmd"],
    }),
    { cmd: echo },
  );
  const list = { type: "array", items: text };
  assert.deepEqual(
    await argumentsFor(prompt, {
      name: "shell",
      properties: { command: list },
    }),
    { command: ["echo", "Hello from the model simulator"] },
  );
  assert.partialDeepStrictEqual(
    await argumentsFor(prompt, {
      name: "Write",
      properties: { file_path: text, content: text },
    }),
    { file_path: "/tmp/model-simulator.txt" },
  );
  assert.deepEqual(
    await argumentsFor("Read src/main.ts", {
      name: "Read",
      properties: { file_path: text },
    }),
    { file_path: "src/main.ts" },
  );
});

const SCHEMA = {
  type: "object",
  $defs: { Role: { enum: ["admin", "guest"] } },
  properties: {
    name: text,
    age: integer,
    role: { $ref: "#/$defs/Role" },
  },
  required: ["name", "age", "role"],
};

/** Prompts for JSON, and what the answer must have. */
const WRITTEN: [messages: object[], expected: object][] = [
  [
    [
      {
        role: "system",
        content: `Answer with JSON of this schema:\n\n${
          JSON.stringify(SCHEMA, null, 2)
        }\n\nReturn an instance, not the schema.`,
      },
      { role: "user", content: "Extract: Jason is 25 years old, a guest" },
    ],
    { name: "Jason", age: 25, role: "guest" },
  ],
  [
    [{
      role: "user",
      content:
        "Tell me a joke about cats. Return the result as a JSON with 'setup' " +
        "and 'punchline' keys. Return nothing other than JSON.",
    }],
    {},
  ],
  [
    [
      {
        role: "user",
        content: 'Use {braces}. Outputs:\n{\n  "reasoning": "{reasoning}",\n' +
          '  "answer": "{answer}  # must be a single int value"\n}\nWhat is 7?',
      },
    ],
    { answer: 7 },
  ],
];

Deno.test("JSON is as the prompt describes it: a schema, keys, or an example", async () => {
  await using simulator = startTestSimulator();
  const keys = ["name,age,role", "setup,punchline", "reasoning,answer"];
  for (const [at, [messages, expected]] of WRITTEN.entries()) {
    const body: Body = {
      messages,
      response_format: { type: "json_object" },
    };
    const json = JSON.parse(await simulator.text(body));
    assert.equal(Object.keys(json).join(), keys[at]);
    assert.partialDeepStrictEqual(json, expected);
    const texts = Object.values(json).filter((each) =>
      typeof each === "string"
    );
    assert.ok(texts.every((each) => each !== ""));
  }
  const plain = JSON.parse(
    await simulator.text({
      prompt: "JSON, please",
      response_format: { type: "json_object" },
    }),
  );
  assert.deepEqual(Object.keys(plain), ["simulator", "asked"]);
});

Deno.test("a prompt that shows JSON and asks for it gets it without json_object", async () => {
  await using simulator = startTestSimulator();
  const shown = 'Fields: {"name": "{name}", "age": "{age} # one int value"}';
  const prompt =
    "Ada is 36. Respond with a JSON object with `name`, then `age`.";
  const ask = (system: string) =>
    simulator.text({
      messages: [
        { role: "system", content: system },
        { role: "user", content: prompt },
      ],
    });
  assert.equal(typeof JSON.parse(await ask(shown)).age, "number");
  assert.match(await ask("Be brief."), /^I am the gateway's model simulator/);
});
