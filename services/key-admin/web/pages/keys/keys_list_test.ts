/** The list of keys: its orders, and what is done with several keys together. */
import assert from "node:assert/strict";
import { startConsole, storedKey } from "../../../console_fixture.ts";
import { routeOwner } from "../../../routes_fixture.ts";

Deno.test("the list of keys is sorted by each column that its head links to", async () => {
  await using site = await startConsole();
  const { client, ownerId } = await routeOwner(site, 1);
  for (const description of ["beta", "Alpha", "gamma"]) {
    await storedKey(site, ownerId, { description });
  }
  const order = async (sort: string) => {
    const { text, status } = await client.get(`/keys?sort=${sort}`);
    assert.equal(status, 200);
    return {
      names: [...text.matchAll(/dir="auto">(\w+)</g)].map(([, name]) => name)
        .filter((name) => /^(beta|Alpha|gamma)$/.test(name ?? "")),
      head: /<th[^>]*aria-sort="(\w+)"[^>]*><a href="([^"]*)"/.exec(text),
    };
  };
  const ascending = await order("description");
  assert.deepEqual(ascending.names, ["Alpha", "beta", "gamma"]);
  assert.deepEqual(ascending.head?.slice(1), [
    "ascending",
    "/keys?sort=-description",
  ]);
  const descending = await order("-description");
  assert.deepEqual(descending.names, ["gamma", "beta", "Alpha"]);
  assert.equal(descending.head?.[1], "descending");
  const unknown = await order("password");
  assert.deepEqual(unknown.head?.slice(1), [
    "descending",
    "/keys?sort=created",
  ]);
  const sorts = [
    "status",
    "created",
    "used",
    "expires",
    "requests",
    "tokens",
  ];
  for (const sort of sorts) {
    assert.equal((await order(sort)).head?.[1], "ascending", sort);
  }
});

Deno.test("selected keys are disabled together after a question, and no others", async () => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const { ownerId: otherId, keyId: othersKey } = await routeOwner(site, 2);
  const second = await storedKey(site, ownerId, { description: "Nightly" });
  const third = await storedKey(site, ownerId, { description: "Kept" });
  const list = await client.get("/keys");
  for (const id of [keyId, second.id, third.id]) {
    assert.ok(list.text.includes(`name="keys" value="${id}" form="selected"`));
  }
  const query = `keys=${keyId}&keys=${second.id}&keys=${othersKey}`;
  const question = await client.get(
    `/keys/disable?${query}&next=${encodeURIComponent("/keys?filter=enabled")}`,
  );
  assert.match(question.text, /Disable these keys\?/);
  assert.ok(!question.text.includes(othersKey));
  assert.equal(question.text.match(/name="keys"[^>]*checked/g)?.length, 2);
  const answer = await client.post("/keys/disable", {
    keys: [keyId, second.id, othersKey],
    stop_running: "on",
    next: "/keys?filter=enabled",
  });
  assert.equal(
    answer.headers.get("location"),
    "/keys?filter=enabled&done=keys_disabled",
  );
  const stateOf = async (owner: string, id: string) =>
    (await site.deps.keys.find(owner, id)).state;
  assert.equal(await stateOf(ownerId, keyId), "disabled");
  assert.equal(await stateOf(ownerId, second.id), "disabled");
  assert.equal(await stateOf(ownerId, third.id), "enabled");
  assert.equal(await stateOf(otherId, othersKey), "enabled");
  assert.deepEqual(
    site.stops.map(({ keyId }) => keyId).sort(),
    [keyId, second.id].sort(),
  );
  const nothing = await client.get(`/keys/disable?keys=${keyId}`);
  assert.equal(nothing.status, 400);
  assert.match(nothing.text, /No enabled key is selected/);
  assert.equal((await client.get("/keys/disable")).status, 400);
});
