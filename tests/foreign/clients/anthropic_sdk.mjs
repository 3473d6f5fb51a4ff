// What a program with Anthropic's SDK for JavaScript does, run by `official_sdks.ts`:
// it ends with 0 if everything was as it should be.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const { ADDRESS, KEY, WRONG_KEY, MODEL } = process.env;
const client = new Anthropic({ baseURL: ADDRESS, apiKey: KEY, maxRetries: 0 });
const messages = [{ role: "user", content: "Run `cat note.txt`" }];
const tools = [{ name: "Bash", input_schema: { type: "object" } }];
const ask = { model: MODEL, max_tokens: 100, messages };

const whole = await client.messages.create(ask);
assert.equal(whole.content[0].text, "Hello there.");
assert.equal(whole.usage.output_tokens, 5);

const called = await client.messages.stream({ ...ask, tools }).finalMessage();
assert.equal(called.stop_reason, "tool_use");
const call = called.content[0];
assert.equal(call.input.command, "cat note.txt");

const result = { type: "tool_result", tool_use_id: call.id, content: "a mark" };
const answered = await client.messages.create({
  ...ask,
  tools,
  messages: [
    ...messages,
    { role: "assistant", content: called.content },
    { role: "user", content: [result] },
  ],
});
assert.equal(answered.content[0].text, "Result: a mark");

const { input_tokens: tokens } = await client.messages.countTokens({
  model: MODEL,
  messages,
});
assert.equal(tokens, 7);

const listed = await client.models.list();
assert.ok(listed.data.some(({ id }) => id === MODEL));

// With retries allowed, as they are by default.
const wrong = new Anthropic({ baseURL: ADDRESS, apiKey: WRONG_KEY });
await assert.rejects(wrong.messages.create(ask), Anthropic.AuthenticationError);
await assert.rejects(
  client.messages.create({ ...ask, model: "none" }),
  Anthropic.NotFoundError,
);
await assert.rejects(
  client.messages.create({ ...ask, max_tokens: -1 }),
  Anthropic.BadRequestError,
);
