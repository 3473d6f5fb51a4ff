/** How forms for model servers are written. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { encodeForm } from "./form.ts";

const content = new Uint8Array(1_000).fill(7);
const file = { field: "file", name: 'a"b.wav', type: "", content };

Deno.test("encodeForm() writes the model, fields and then files, and percent-encodes their names", async () => {
  const fields = {
    "0": "z",
    model: "m",
    "include[]": ["x", "y"],
    language: undefined,
  };
  const { contentType, body } = encodeForm(fields, [file, file]);
  const headers = { "content-type": contentType };
  const form = await new Response(Buffer.concat(body), { headers }).formData();
  const read = [...form].map(([name, value]) =>
    typeof value === "string" ? [name, value] : [name, value.name, value.size]
  );
  assert.deepEqual(read, [
    ["model", "m"],
    ["0", "z"],
    ["include[]", "x"],
    ["include[]", "y"],
    ["file", "a%22b.wav", 1_000],
    ["file", "a%22b.wav", 1_000],
  ]);
});

Deno.test("API4: encodeForm() refers to the bytes of files, and copies none", () => {
  const { body } = encodeForm({ model: "m" }, [file, file]);
  assert.equal(body.filter((piece) => piece === content).length, 2);
});
