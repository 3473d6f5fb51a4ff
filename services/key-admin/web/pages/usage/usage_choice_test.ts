/**
 * Guarantee: pages and files of usage show the days and time zone that are asked for,
 * by what is asked for, and say what is wrong with a question.
 */
import assert from "node:assert/strict";
import type { TestClient } from "../../../client_fixture.ts";
import {
  startConsole,
  storedKey,
  type TestConsole,
} from "../../../console_fixture.ts";
import { type RouteOwner, routeOwner } from "../../../routes_fixture.ts";
import { countUse } from "../../../usage_fixture.ts";

const HOUR_MS = 3_600_000;
const NOW = "2026-11-29T10:30:00Z";

/** A console at a fixed time, whose owner used two models with two keys. */
async function startUsed() {
  const site = await startConsole();
  site.clock.nowMs = Date.parse(NOW);
  const owner = await routeOwner(site, 1);
  const { ownerId, keyId } = owner;
  const other = await storedKey(site, ownerId, { description: "Nightly" });
  const use = (
    id: string,
    time: string,
    { model, requests }: { model: string; requests: number },
  ) =>
    countUse(site, { ownerId, keyId: id }, {
      atMs: Date.parse(time),
      model,
      endpoint: "chat",
      counts: { requests, promptTokens: 10 * requests },
    });
  await use(keyId, "2026-11-25T22:30:00Z", { model: "small-1", requests: 5 });
  await use(keyId, "2026-11-26T12:00:00Z", { model: "large-1", requests: 3 });
  await use(other.id, "2026-11-26T12:00:00Z", {
    model: "small-1",
    requests: 1,
  });
  return { site, owner, otherId: other.id };
}

/** The lines of a file, without its byte order mark. */
async function linesOf({ get }: Pick<TestClient, "get">, path: string) {
  const { text, status } = await get(path);
  assert.equal(status, 200, text);
  return text.replace(/^\uFEFF/, "").trimEnd().split("\r\n");
}

const bound = (client: TestClient) => ({
  get: (path: string) => client.get(path),
});

Deno.test("a day is that of the time zone, on the page and in the file", async () => {
  const { site, owner: { client } } = await startUsed();
  await using _ = site;
  const days = "from=2026-11-24&to=2026-11-27";
  const cases = [
    { zone: "UTC", day: "2026-11-25", shown: "Nov 25" },
    { zone: "Europe/Berlin", day: "2026-11-25", shown: "Nov 25" },
    { zone: "Asia/Tokyo", day: "2026-11-26", shown: "Nov 26" },
  ];
  for (const { zone, day, shown } of cases) {
    const query = `${days}&zone=${encodeURIComponent(zone)}`;
    const { text } = await client.get(`/usage?${query}`);
    const least = day === "2026-11-26" ? 9 : 5;
    assert.match(text, new RegExp(`<title>${shown}: Successful ${least},`));
    assert.match(text, new RegExp(`Days in ${zone}`));
    const lines = await linesOf(bound(client), `/usage/export.csv?${query}`);
    assert.equal(lines.length, 5);
    const line = lines.find((each) => each.startsWith(`${day},`)) ?? "";
    assert.match(line, new RegExp(`^${day},${least},0,0,${10 * least},0,`));
  }
});

Deno.test("bars are stacked by model, endpoint and key, and the file has the same", async () => {
  const { site, owner: { client, keyId }, otherId } = await startUsed();
  await using _ = site;
  const query = "range=7d&by=";
  const byModel = (await client.get(`/usage?${query}model`)).text;
  assert.match(
    byModel,
    /Nov 26: large-1 3, small-1 1 \(in all 4\)|Nov 26: small-1 1, large-1 3 \(in all 4\)/,
  );
  const byKey = (await client.get(`/usage?${query}key`)).text;
  assert.match(
    byKey,
    /Nov 26: Secret project 1 sk-\S+ 3, Nightly sk-\S+ 1 \(in all 4\)/,
  );
  assert.match(
    (await client.get(`/keys/${otherId}?${query}endpoint`)).text,
    /<title>Nov 26: Chat 1</,
  );
  const file = (by: string) =>
    linesOf(bound(client), `/usage/export.csv?${query}${by}`);
  const [head, ...models] = await file("model");
  assert.match(head ?? "", /^day,model,requests,failed,refused,input_tokens,/);
  assert.deepEqual(
    models.map((line) => line.split(",").slice(0, 3).join()).sort(),
    ["2026-11-25,small-1,5", "2026-11-26,large-1,3", "2026-11-26,small-1,1"],
  );
  const keys = (await file("key")).slice(1);
  assert.deepEqual(
    keys.map((line) => line.split(",")).map((cells) =>
      [cells[0], cells[1], cells[4]].join()
    ).sort(),
    [
      `2026-11-25,${keyId},5`,
      `2026-11-26,${keyId},3`,
      `2026-11-26,${otherId},1`,
    ].sort(),
  );
});

Deno.test("more than half a year is shown by weeks, with the same sums, and its file by days", async () => {
  const { site, owner: { client } } = await startUsed();
  await using _ = site;
  const half = (await client.get("/usage?from=2026-05-30&by=key")).text;
  assert.match(half, /Requests per day/);
  for (const zone of ["UTC", "Asia/Tokyo"]) {
    const query = `from=2025-12-01&by=key&zone=${zone}`;
    const { text } = await client.get(`/usage?${query}`);
    assert.match(text, /Requests per week/);
    assert.match(text, /<span>This week</);
    // Wednesday and Thursday; the span begins on a Monday, and so does the last week.
    assert.match(
      text,
      /<title>Week of Nov 23, 2026: Secret project 1 sk-\S+ 8, Nightly sk-\S+ 1 \(in all 9\)</,
    );
    const requests = text.slice(0, text.indexOf("Tokens per week"));
    assert.equal(requests.match(/<title>Week of /g)?.length, 52);
    assert.match(text, /<th scope="row">Week of Nov 23, 2026</);
    const lines = await linesOf(
      bound(client),
      `/usage/export.csv?from=2025-12-01&zone=${zone}`,
    );
    assert.equal(lines.length, 1 + 364);
  }
});

Deno.test("hours of a file have the offset of their zone", async () => {
  const { site, owner: { client } } = await startUsed();
  await using _ = site;
  const path =
    "/usage/export.csv?from=2026-11-26&to=2026-11-26&zone=Asia/Kolkata";
  const lines = await linesOf(bound(client), path);
  assert.equal(lines.length, 25);
  assert.match(
    lines.find((line) => /,4,/.test(line)) ?? "",
    /^2026-11-26T17:30\+05:30,4,/,
  );
});

Deno.test("a question with a mistake is answered with it, and keeps what was entered", async () => {
  const { site, owner: { client } } = await startUsed();
  await using _ = site;
  const cases = [
    {
      query: "from=1999-07-15&to=2026-11-29",
      mistake: /These are 10000 days/,
      kept: "1999-07-15",
    },
    {
      query: "from=2026-11-05&to=2026-11-04",
      mistake: /before the first day/,
      kept: "2026-11-05",
    },
    {
      query: "from=2026-11-04&zone=Mars/Base",
      mistake: /no such time zone/,
      kept: "Mars/Base",
    },
    { query: "from=last+week", mistake: /Not a day/, kept: "last week" },
  ];
  for (const { query, mistake, kept } of cases) {
    for (const page of ["/usage", ...await keyPages(client)]) {
      const { text, status } = await client.get(`${page}?${query}&by=model`);
      assert.equal(status, 400, page);
      assert.match(text, mistake);
      assert.ok(text.includes(`value="${kept}"`), `${page}: ${kept}`);
      assert.ok(text.includes('name="by" value="model"'), page);
    }
    const file = await client.get(`/usage/export.csv?${query}`);
    assert.equal(file.status, 400);
    assert.match(file.text, mistake);
  }
});

/** The page of one key. */
async function keyPages(client: TestClient): Promise<string[]> {
  const { text } = await client.get("/keys");
  return [...text.matchAll(/href="(\/keys\/key_\w+)"/g)].slice(0, 1)
    .flatMap(([, path]) => path ?? []);
}

Deno.test("operators see all accounts together, and by account", async () => {
  const { site, owner } = await startUsed();
  await using _ = site;
  const second = await routeOwner(site, 2);
  await countUse(site, second, {
    atMs: site.clock.nowMs - HOUR_MS,
    model: "large-1",
    endpoint: "messages",
    counts: { requests: 20 },
  });
  assert.equal((await owner.client.get("/people/usage")).status, 404);
  const operator = await operatorOf(site, owner);
  const { text } = await operator.get("/people/usage?range=7d&by=account");
  assert.match(text, /<title>Nov 26: owner1@example.org 4</);
  assert.match(text, /<title>Nov 29: owner2@example.org 20</);
  const byKey = (await operator.get("/people/usage?range=7d&by=key")).text;
  assert.match(byKey, /<title>Nov 26: Secret project 1 sk-\S+ 3, Nightly sk-/);
  assert.match(byKey, /<title>Nov 29: Secret project 2 sk-\S+ 20</);
  const { ownerId, keyId } = second;
  assert.ok(byKey.includes(`href="/people/${ownerId}/keys/${keyId}"`));
  const path = "/people/usage/export.csv?range=7d&by=account";
  const lines = (await linesOf(bound(operator), path)).slice(1);
  assert.deepEqual(
    lines.map((line) =>
      line.split(",").filter((_, at) => at !== 1).slice(0, 3).join()
    ).sort(),
    [
      "2026-11-25,owner1@example.org,5",
      "2026-11-26,owner1@example.org,4",
      "2026-11-29,owner2@example.org,20",
    ],
  );
});

async function operatorOf(
  { deps }: Pick<TestConsole, "deps">,
  { client, ownerId }: RouteOwner,
): Promise<TestClient> {
  await deps.owners.giveRole(ownerId);
  return client;
}
