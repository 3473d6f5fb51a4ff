/** Cases B: answers without `stream`. */
import assert from "node:assert/strict";
import { type Cases, M1, MODEL } from "./context.ts";

const NULLABLE = [
  ...["stream", "stream_options", "temperature", "top_p", "max_tokens"],
  ...["max_completion_tokens", "presence_penalty", "frequency_penalty"],
  ...["repetition_penalty", "n", "seed", "stop", "tools", "tool_choice"],
  ...["parallel_tool_calls", "response_format", "enable_thinking"],
];

export const answerCases: Cases = async (t, { answer, post, call }) => {
  const isOk = async (response: Response, what: string) => {
    assert.equal(response.status, 200, `${what}: ${await response.text()}`);
  };

  await t.step("B11-B13 what the schema does not say", async () => {
    const { created, model, choices, usage } = await answer();
    const [choice, ...more] = choices;
    assert.ok(Math.abs(Date.now() / 1000 - created) < 300);
    assert.equal(model, MODEL);
    assert.deepEqual(more, []);
    assert.ok(choice?.message.content);
    assert.match(choice.finish_reason, /^(stop|length)$/);
    assert.equal(choice.logprobs, null);
    assert.ok(usage.prompt_tokens >= 1);
  });
  await t.step("B14 every answer has an id of its own", async () => {
    assert.notEqual((await answer()).id, (await answer()).id);
  });
  await t.step("B15 max_tokens bounds the answer", async () => {
    const completion = await answer({ max_tokens: 1 });
    assert.equal(completion.choices[0]?.finish_reason, "length");
    assert.equal(completion.usage.completion_tokens, 1);
  });
  await t.step("B16 n gives choices in order", async () => {
    const completion = await answer({ n: 3, max_tokens: 5 });
    assert.deepEqual(completion.choices.map(({ index }) => index), [0, 1, 2]);
    assert.ok(completion.usage.completion_tokens > 5);
    const short = await answer({ n: 3, max_tokens: 1 });
    assert.equal(short.usage.completion_tokens, 3);
  });
  await t.step("B17 stop, a string or an array, ends the text", async () => {
    for (const stop of ["e", ["e"], ["e", "a"]]) {
      const { choices: [choice] } = await answer({ stop });
      assert.ok(!choice?.message.content?.includes("e"));
      assert.equal(choice?.finish_reason, "stop");
    }
  });
  await t.step("B18-B22 what SDKs send is accepted", async () => {
    const parts = [{ type: "text", text: "ping" }];
    const developer = { role: "developer", content: "Be brief." };
    const accepted = [
      { temperature: 0.7, top_p: 0.9 },
      { messages: [{ role: "user", content: parts }] },
      { messages: [developer, ...M1.messages] },
      // Unknown members.
      { store: false, metadata: { a: "b" }, user: "u", zzz: 1 },
      { logit_bias: null, frequency_penalty: 0 },
      Object.fromEntries(NULLABLE.map((name) => [name, null])),
      { max_completion_tokens: 3 },
    ];
    for (const change of accepted) await answer({ max_tokens: 5, ...change });
  });
  await t.step("B23 headers do not matter", async () => {
    const body = JSON.stringify({ ...M1, max_tokens: 3 });
    const bytes = new TextEncoder().encode(body);
    await isOk(await post(bytes, {}), "no content type");
    const headers = { "content-type": "Application/JSON; charset=utf-8" };
    await isOk(await post(body, headers), "content type with charset");
    const accept = { ...headers, accept: "text/html" };
    await isOk(await post(body, accept), "accept");
    const slash = { method: "POST", headers, body };
    await isOk(await call("/chat/completions/", slash), "trailing slash");
  });
  await t.step("B24 thinking only when asked for", async () => {
    const { choices, usage } = await answer({ enable_thinking: true });
    assert.ok(choices[0]?.message.reasoning_content);
    assert.ok(choices[0]?.message.content);
    const { reasoning_tokens = 0 } = usage.completion_tokens_details ?? {};
    assert.ok(reasoning_tokens > 0);
    const plain = await answer({ enable_thinking: false });
    assert.ok(!("reasoning_content" in (plain.choices[0]?.message ?? {})));
  });
};
