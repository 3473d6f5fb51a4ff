// What a program with OpenAI's SDK for JavaScript does, run by `official_sdks.ts`: it
// ends with 0 if everything was as it should be.
import assert from "node:assert/strict";
import OpenAI from "openai";

const { ADDRESS, KEY, WRONG_KEY, MODEL, EMBEDDING_MODEL } = process.env;
const baseURL = `${ADDRESS}/v1`;
const client = new OpenAI({ baseURL, apiKey: KEY, maxRetries: 0 });
const input = "Run `cat note.txt`";
const parameters = { type: "object", properties: {} };
const tools = [
  { type: "function", name: "exec_command", parameters, strict: false },
];
const ask = { model: MODEL, input };

const whole = await client.responses.create(ask);
assert.equal(whole.output_text, "Hello there.");
assert.equal(whole.usage.total_tokens, 15);

const stream = client.responses.stream({ ...ask, tools });
const called = await stream.finalResponse();
const [call] = called.output;
assert.deepEqual(JSON.parse(call.arguments), { cmd: "cat note.txt" });

const answered = await client.responses.create({
  ...ask,
  tools,
  input: [
    { role: "user", content: input },
    call,
    { type: "function_call_output", call_id: call.call_id, output: "a mark" },
  ],
});
assert.equal(answered.output_text, "Result: a mark");

for (const encoding_format of [undefined, "float", "base64"]) {
  const { data } = await client.embeddings.create({
    model: EMBEDDING_MODEL,
    input: ["a", "b"],
    ...encoding_format && { encoding_format },
  });
  assert.equal(data.length, 2);
  const [{ embedding }] = data;
  if (encoding_format === "base64") assert.equal(embedding, "AACAPwAAAEA=");
  else assert.deepEqual([...embedding], [1, 2]);
}

const wrong = new OpenAI({ baseURL, apiKey: WRONG_KEY });
await assert.rejects(wrong.responses.create(ask), OpenAI.AuthenticationError);
await assert.rejects(
  client.responses.create({ ...ask, model: "none" }),
  OpenAI.NotFoundError,
);
await assert.rejects(
  client.responses.create({ ...ask, previous_response_id: "resp_1" }),
  OpenAI.BadRequestError,
);
