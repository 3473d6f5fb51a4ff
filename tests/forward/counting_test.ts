// What counts tokens before a request is made: it costs nothing, and where no server
// can, agents are told so, that they count by themselves.
import assert from "node:assert/strict";
import { jsonResponse } from "../support/model_servers/model_answers.ts";
import { setup, setupWith } from "./forward_rig.ts";

Deno.test("counting tokens costs nothing, and is refused where no server can", async () => {
  const count = '{"input_tokens":14}';
  await using rig = await setup(() => jsonResponse(count));
  const answer = await rig.post(
    "messages/count_tokens?beta=true",
    '{"model":"talk","messages":[]}',
  );
  assert.equal(await answer.text(), count);
  assert.equal(
    (await rig.request()).path,
    "/v1/messages/count_tokens?beta=true",
  );
  assert.deepEqual(rig.settlements(), [], "it was not admitted as a request");
  await using without = await setupWith(
    { backend: { dialect: "lmstudio" } },
    () => jsonResponse(count),
  );
  // Claude Code estimates by itself only after 404.
  const refused = await without.post(
    "messages/count_tokens",
    '{"model":"talk","messages":[]}',
  );
  assert.equal(refused.status, 404);
  assert.partialDeepStrictEqual(await refused.json(), {
    type: "error",
    error: { type: "not_found_error" },
  });
});

const MESSAGE =
  '{"id":"m","content":[],"usage":{"input_tokens":3,"output_tokens":4}}';

Deno.test("a server that cannot count tokens, though it should, serves all else", async () => {
  const absent = [
    { status: 404, text: '{"detail":"Not Found"}' },
    { status: 405, text: '{"detail":"Method Not Allowed"}' },
    { status: 501, text: "" },
  ];
  for (const { status, text } of absent) {
    await using rig = await setupWith(
      { backend: { speaks: ["messages", "count_tokens", "input_tokens"] } },
      ({ path }) =>
        path === "/v1/messages"
          ? jsonResponse(MESSAGE)
          : jsonResponse(text, { status }),
    );
    // Claude Code asks as many times when it starts.
    for (let count = 0; count < 14; count++) {
      const answer = await rig.post(
        "messages/count_tokens",
        '{"model":"talk","messages":[]}',
      );
      assert.equal(answer.status, 404);
      assert.partialDeepStrictEqual(await answer.json(), {
        type: "error",
        error: { type: "not_found_error" },
      });
    }
    const input = await rig.post(
      "responses/input_tokens",
      '{"model":"talk","input":"a"}',
    );
    assert.equal(input.status, 404);
    assert.partialDeepStrictEqual(await input.json(), {
      error: { code: "not_found" },
    });
    const answer = await rig.post(
      "messages",
      '{"model":"talk","max_tokens":5,"messages":[]}',
    );
    assert.equal(await answer.text(), MESSAGE);
  }
});

Deno.test("what a server says of a model that it cannot count for passes on", async () => {
  const text = '{"message":"The model doesn\'t support counting tokens."}';
  await using rig = await setup(() => jsonResponse(text, { status: 400 }));
  const answer = await rig.post(
    "messages/count_tokens",
    '{"model":"talk","messages":[]}',
  );
  assert.equal(answer.status, 400);
  assert.equal(await answer.text(), text);
});
