// Calls of tools in the form that OpenAI had before, which some servers still send.
import assert from "node:assert/strict";
import {
  choiceChunk,
  streamResponse,
} from "../../../tests/support/model_servers/model_answers.ts";
import { newAnswer } from "./answer/answer_fixture.ts";
import { chat, rig } from "./openai_fixture.ts";

const CALLED = { name: "f", arguments: "{}" };
const CALLS = [{ index: 0, id: "a", function: CALLED }];

/** What a client gets of a stream with this delta. */
async function passedOn(delta: object, reason: string): Promise<string> {
  const reply = streamResponse([choiceChunk(delta), choiceChunk({}, reason)]);
  await using r = rig(() => reply);
  const { answer, context } = newAnswer(chat({ stream: true }));
  const usage = await r.backend.complete(answer);
  await answer.end(usage);
  return context.answer().toString();
}

Deno.test("a call in both forms reaches the client as one of a tool", async () => {
  const text = await passedOn(
    { function_call: CALLED, tool_calls: CALLS },
    "stop",
  );
  assert.match(text, /"tool_calls":\[/);
  assert.doesNotMatch(text, /"function_call":/);
});

Deno.test("a call in the older form alone reaches the client as it is", async () => {
  const text = await passedOn(
    { function_call: CALLED, tool_calls: [] },
    "stop",
  );
  assert.match(text, /"function_call":\{"name":"f"/);
});
