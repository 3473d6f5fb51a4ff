/** The reference of the API in the console. */
import runbooks from "./runbooks.json" with { type: "json" };
import document from "@gateway/shared/openai/openapi" with { type: "json" };
import assert from "node:assert/strict";
import { startConsole } from "../../console_fixture.ts";

Deno.test("the reference has all that the description of the API has, for everyone and without a script", async () => {
  await using site = await startConsole();
  const stranger = await site.client().get("/reference");
  const ada = await site.signedIn("ada@example.org");
  const owner = await ada.get("/reference");
  const { examples, headers, schemas } = document.components;
  for (const { status, text } of [stranger, owner]) {
    assert.equal(status, 200);
    const has = (part: string) => assert.ok(text.includes(part), part);
    for (const [name, { properties }] of Object.entries(schemas)) {
      has(`id="${name}"`);
      for (const field of Object.keys(properties)) has(`<code>${field}</code>`);
    }
    for (const { value: { error } } of Object.values(examples)) {
      has(`<code>${error.code}</code>`);
    }
    for (const header of Object.keys(headers)) has(`<code>${header}</code>`);
    for (const path of Object.keys(document.paths)) has(` ${path}</code>`);
    has("<code>null</code> (default 1, minimum 1, maximum 8)");
    has("(exclusive minimum 0)");
    has("(max items 16) of <code>string</code> (min length 1, max");
    // Each link within the page leads somewhere, and only to one place.
    const ids = [...text.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id);
    assert.equal(new Set(ids).size, ids.length);
    for (const [, id] of text.matchAll(/href="#([^"]+)"/g)) {
      assert.ok(ids.includes(id), id);
    }
  }
  assert.ok(owner.text.includes('action="/sign-out"'));
  assert.ok(!stranger.text.includes('action="/sign-out"'));
  assert.ok(stranger.text.includes('href="/sign-in"'));
});

Deno.test("the link of an alert leads to what to do, for everyone and without a script", async () => {
  await using site = await startConsole();
  const { status, text } = await site.client().get("/runbooks");
  assert.equal(status, 200);
  assert.ok(runbooks.length > 20);
  for (const { alert } of runbooks) {
    assert.ok(text.includes(`<h2 id="${alert.toLowerCase()}">${alert}</h2>`));
  }
  assert.match(text, /<em>page<\/em> · Prometheus cannot reach/);
  assert.match(text, /<code>start_failed<\/code> line names the reason/);
  assert.doesNotMatch(text, /\]\(|\*\*|`/);
});
