import assert from "node:assert/strict";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { getModel, listModels } from "./models.ts";

const CATALOG = parseCatalog({
  models: ["alpha", "vendor/beta"].map((id) => ({
    id,
    owned_by: "us",
    created: 1_700_000_000,
    backends: [{ type: "openai", base_url: "http://a/v1", model: "m" }],
  })),
});

Deno.test("listModels() lists what a key may use, in the order of the file", () => {
  const ids = (allowed: string[]) =>
    listModels(CATALOG, allowed).data.map(({ id }) => id);
  assert.deepEqual(ids([]), ["alpha", "vendor/beta"]);
  assert.deepEqual(ids(["vendor/beta"]), ["vendor/beta"]);
  assert.deepEqual(ids(["gone"]), []);
});

Deno.test("getModel() answers in OpenAI's shape", () => {
  assert.deepEqual(getModel(CATALOG, [], "vendor/beta"), {
    id: "vendor/beta",
    object: "model",
    created: 1_700_000_000,
    owned_by: "us",
  });
});

Deno.test("getModel() does not tell an unknown model from one that is not allowed", () => {
  for (
    const [allowed, id] of [[[], "nope"], [["alpha"], "vendor/beta"]] as const
  ) {
    assert.throws(() => getModel(CATALOG, allowed, id), {
      code: "model_not_found",
      status: 404,
    });
  }
});
