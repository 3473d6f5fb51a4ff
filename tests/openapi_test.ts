// Promise: the description of the API is valid OpenAPI, whole, and its examples work.
import assert from "node:assert/strict";
import document from "@gateway/shared/openai/openapi" with { type: "json" };
import { Validator } from "@seriousme/openapi-schema-validator";
import { assertDescribed, validatorOf } from "./support/api_document.ts";

Deno.test("the description of the API is valid OpenAPI 3.1", async () => {
  const validator = new Validator();
  const copy: typeof document = structuredClone(document);
  const { valid, errors } = await validator.validate(copy);
  assert.ok(valid, JSON.stringify(errors));
  assert.equal(validator.version, "3.1");
  // Also that every reference leads somewhere.
  validator.resolveRefs();
});

Deno.test("every field of a request and every error code is described, and the examples are valid", () => {
  const { schemas, examples } = document.components;
  const fields = Object.entries(schemas.ChatCompletionRequest.properties);
  const silent = fields.filter(([, field]) => !field.description);
  assert.deepEqual(silent.map(([name]) => name), []);
  for (const [code, { description, value }] of Object.entries(examples)) {
    assert.match(description, /^[^|]+[.)]$/, code);
    assert.ok(validatorOf("Error")(value), code);
  }
  const { requestBody } = document.paths["/v1/chat/completions"].post;
  const requests = requestBody.content["application/json"].examples;
  for (const { value } of Object.values(requests)) assertDescribed(value);
});
