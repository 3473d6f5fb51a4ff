/** Bodies that are forwarded, and what is read and changed in them. */
import assert from "node:assert/strict";
import { ApiError } from "../openai/error.ts";
import { edited, readForwardBody, spanOf } from "./body.ts";
import { bodyFor } from "./request.ts";

const SINGLE = ["model", "stream"];
const read = (text: string | Uint8Array<ArrayBuffer>) =>
  readForwardBody(
    typeof text === "string" ? new TextEncoder().encode(text) : text,
    SINGLE,
  );

Deno.test("readForwardBody() refuses what no server should get to interpret", () => {
  const deep = "[".repeat(100) + "]".repeat(100);
  const cases = [
    { text: "", code: "invalid_json", param: null },
    { text: '{"model":"m"', code: "invalid_json", param: null },
    { text: '{"model":"m",}', code: "invalid_json", param: null },
    {
      text: new Uint8Array([0x7b, 0xff, 0x7d]),
      code: "invalid_json",
      param: null,
    },
    { text: "[]", code: "invalid_type", param: null },
    { text: "null", code: "invalid_type", param: null },
    { text: `{"model":${deep}}`, code: "invalid_request", param: null },
    {
      text: '{"model":"a","model":"b"}',
      code: "invalid_value",
      param: "model",
    },
    {
      text: '{"model":"a","mod\\u0065l":"b"}',
      code: "invalid_value",
      param: "model",
    },
    {
      text: '{"stream":true,"stream":false}',
      code: "invalid_value",
      param: "stream",
    },
  ];
  for (const { text, code, param } of cases) {
    assert.throws(() => read(text), (error) => {
      assert.ok(error instanceof ApiError, String(text));
      assert.deepEqual([error.code, error.param], [code, param], String(text));
      return true;
    });
  }
});

Deno.test("a body keeps every byte but those of its model and of what was edited", () => {
  const text =
    '{"seed":12345678901234567890,"max_tokens":64000, "input":"é\\u00e9",' +
    '"x":1.0,"nested":{"model":"inner"} ,"model" : "ours"}';
  const body = read(text);
  const at = spanOf(body, "max_tokens") ?? assert.fail();
  const lowered = edited(body, [{ ...at, text: "100" }]);
  const modelAt = spanOf(lowered, "model") ?? assert.fail();
  assert.equal(
    bodyFor({ body: lowered.text, modelAt }, 'their/"name"'),
    text.replace("64000", "100").replace('"ours"', '"their/\\"name\\""'),
  );
  assert.equal(edited(body, []), body);
  assert.equal(spanOf(body, "absent"), null);
});
