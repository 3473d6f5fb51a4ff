// The official OpenAI SDK reads forwarded answers as it reads those of the servers.
import assert from "node:assert/strict";
import OpenAI from "openai";
import {
  jsonResponse,
  lastChunk,
} from "../support/model_servers/model_answers.ts";
import { namedEvent, stream, WHOLE_COMPLETION } from "./event_streams.ts";
import { type ForwardRig, KEY, setup } from "./forward_rig.ts";

const ITEM = {
  type: "message",
  id: "msg_1",
  role: "assistant",
  status: "completed",
  content: [{ type: "output_text", text: "Hello", annotations: [] }],
};
const DONE = {
  id: "resp_1",
  object: "response",
  status: "completed",
  output: [ITEM],
  usage: { input_tokens: 2, output_tokens: 1, total_tokens: 3 },
};
const EVENTS = namedEvent("response.created", {
  response: { ...DONE, status: "in_progress", output: [] },
  sequence_number: 0,
}) + namedEvent("response.output_text.delta", {
  delta: "Hello",
  item_id: "msg_1",
  output_index: 0,
  content_index: 0,
  sequence_number: 1,
  logprobs: [],
}) + namedEvent("response.completed", { response: DONE, sequence_number: 2 });

const clientOf = ({ gateway }: ForwardRig) =>
  new OpenAI({ baseURL: gateway.baseUrl(), apiKey: KEY, maxRetries: 0 });

Deno.test("openai-node reads responses, whole and streamed", async () => {
  await using whole = await setup(() => jsonResponse(DONE));
  const request = { model: "talk", input: "hi" };
  const answer = await clientOf(whole).responses.create(request);
  assert.equal(answer.output_text, "Hello");
  await using streamed = await setup(() => [...stream(EVENTS), lastChunk]);
  const events = await clientOf(streamed).responses.create({
    ...request,
    stream: true,
  });
  const types: string[] = [];
  for await (const { type } of events) types.push(type);
  assert.deepEqual(types, [
    "response.created",
    "response.output_text.delta",
    "response.completed",
  ]);
});

Deno.test("openai-node reads completions as they are streamed", async () => {
  await using rig = await setup(() => [...stream(WHOLE_COMPLETION), lastChunk]);
  const chunks = await clientOf(rig).completions.create({
    model: "talk",
    prompt: "hi",
    stream: true,
  });
  let text = "";
  for await (const { choices: [choice] } of chunks) text += choice?.text ?? "";
  assert.equal(text, "Hello");
});

Deno.test("openai-node decodes the base64 of embeddings that it asks for", async () => {
  // Two floats of 32 bits: 1 and -2.
  const answer = {
    object: "list",
    data: [{ object: "embedding", index: 0, embedding: "AACAPwAAAMA=" }],
    usage: { prompt_tokens: 1, total_tokens: 1 },
  };
  await using rig = await setup(() => jsonResponse(answer));
  const { data } = await clientOf(rig).embeddings.create({
    model: "embed",
    input: "hi",
  });
  assert.deepEqual(data[0]?.embedding, [1, -2]);
  const { body } = await rig.request();
  assert.match(body, /"encoding_format":"base64"/);
});

Deno.test("openai-node throws what a server refuses, with its words and status", async () => {
  const refusal = { error: { message: "Too many tokens", code: "too_long" } };
  await using rig = await setup(() => jsonResponse(refusal, { status: 422 }));
  await assert.rejects(
    clientOf(rig).responses.create({ model: "talk", input: "hi" }),
    (error) => {
      assert.ok(error instanceof OpenAI.UnprocessableEntityError);
      assert.equal(error.code, "too_long");
      assert.match(error.message, /Too many tokens/);
      return true;
    },
  );
});
