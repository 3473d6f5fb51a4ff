/** What is offered of the models that servers list. */
import assert from "node:assert/strict";
import { DISCOVERY_LIMITS } from "../bus/server_lists.ts";
import { parseCatalog } from "./catalog.ts";
import { ListedModels } from "./listed_models.ts";

function setup() {
  const catalog = parseCatalog({
    servers: ["a", "b"].map((name) => (
      { type: "openai", name, base_url: `http://${name}/v1` }
    )),
  });
  let nowMs = 0;
  const listed = new ListedModels({ catalog, now: () => nowMs });
  return {
    listed,
    catalog,
    wait(ms: number) {
      nowMs += ms;
      listed.tick();
    },
    /** What is offered; in brackets what is away. */
    offered: () =>
      [...catalog.keys()].map((id) => catalog.isAway(id) ? `(${id})` : id)
        .join(" "),
  };
}

Deno.test("an edge knows what any worker has told, and nothing before", () => {
  const { listed, catalog, offered } = setup();
  assert.ok(catalog.isPending);
  listed.take("w1", { a: ["x"], b: [] });
  listed.take("w2", { a: ["x", "y"] });
  assert.ok(!catalog.isPending);
  assert.equal(offered(), "x y");
  listed.lost("w2");
  assert.equal(offered(), "x (y)");
});

Deno.test("a model that servers have stopped listing is unknown at once, unless another worker lists it", () => {
  const { listed, offered } = setup();
  listed.take("w1", { a: ["x"], b: ["x", "y", "z"] });
  listed.take("w2", { b: ["z"] });
  listed.take("w1", { a: [], b: ["x"] });
  assert.equal(offered(), "x z");
  listed.take("w2", { b: [] });
  assert.equal(offered(), "x");
});

Deno.test("what no worker has is away for a minute, then unknown", () => {
  const { listed, offered, wait } = setup();
  listed.take("w1", { a: ["x"] });
  listed.take("w2", { a: ["x"], b: ["y"] });
  listed.lost("w2");
  assert.equal(offered(), "x (y)");
  wait(DISCOVERY_LIMITS.awayMs - 1);
  assert.equal(offered(), "x (y)");
  wait(1);
  assert.equal(offered(), "x");
  listed.lost("w1");
  assert.equal(offered(), "(x)");
  listed.take("w2", { a: ["x"] });
  assert.equal(offered(), "x");
  wait(2 * DISCOVERY_LIMITS.awayMs);
  assert.equal(offered(), "x");
});

Deno.test("a model that a second server lists gets that server, too", () => {
  const { listed, catalog } = setup();
  listed.take("w1", { a: ["x"] });
  assert.equal(catalog.get("x")?.backends.length, 1);
  listed.take("w1", { a: ["x"], b: ["x"] });
  assert.deepEqual(
    catalog.get("x")?.backends.map(({ name }) => name),
    ["a", "b"],
  );
});
