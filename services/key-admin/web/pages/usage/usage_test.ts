/**
 * Guarantee: owners see what was used, on pages and in files, in the same numbers.
 */
import assert from "node:assert/strict";
import {
  usageDay,
  type UsageEndpoint,
  usageHour,
} from "@gateway/shared/keys/limiter_state";
import type { TestClient } from "../../../client_fixture.ts";
import { startConsole, storedKey } from "../../../console_fixture.ts";
import { countUse, type UseCounts } from "../../../usage_fixture.ts";
import { routeOwner } from "../../../routes_fixture.ts";
import { ticksOf } from "./usage_chart.tsx";

const HOUR_MS = 3_600_000;

/** The text of a page without its tags. */
const textOf = async (client: TestClient, path: string) =>
  (await client.get(path)).text.replace(/<[^>]*>/g, " ").replace(/\s+/g, " ");

/**
 * The lines of a file by the names of their columns. No cell of these tests has a
 * comma.
 */
async function fileOf(client: TestClient, path: string) {
  const { text, headers } = await client.get(path);
  assert.match(headers.get("content-disposition") ?? "", /^attachment; .*csv"/);
  const [head = "", ...lines] = text.replace(/^\uFEFF/, "").trimEnd()
    .split("\r\n");
  const names = head.split(",");
  return lines.map((line) =>
    Object.fromEntries(line.split(",").map((cell, at) => [names[at], cell]))
  );
}

/** The columns that are not 0. */
const counted = (line: Record<string, string>) =>
  Object.fromEntries(Object.entries(line).filter(([, cell]) => cell !== "0"));

const EARLIER_MS = 40 * HOUR_MS;

/** What was used in the current hour, by model; "" is no known model. */
const USE_BY_MODEL: Readonly<Record<string, UseCounts>> = {
  "llama3.2:70b": {
    requests: 1_500,
    errors: 5,
    refused: 18,
    server: 5,
    promptTokens: 7,
    completionTokens: 9,
    requests_per_minute: 10,
    "tokens_per_day.owner": 8,
  },
  "": { refused: 20, unknown_model: 20 },
  "draw-1": { requests: 6, images: 12 },
  "hear-1": { requests: 3, audioSeconds: 95 },
  "say-1": { requests: 4, characters: 3_400 },
  // Its id was given to a model of another kind.
  "show-1": { requests: 2, images: 1, videoSeconds: 8, promptTokens: 7 },
};

/** Texts that pages show of it. */
const SHOWN = [
  "Requests per minute 10 Tokens per day, all keys together 8",
  "Unknown model 20 The service or the model server failed 5",
  "Images 13 Characters 3,400 Audio seconds 95 Video seconds 8",
  "llama3.2:70b 1,500 5 18 7 9 –",
  "Refused 38",
  "draw-1 6 0 0 – – 12 images",
  "hear-1 3 0 0 – – 95 audio seconds",
  "say-1 4 0 0 – – 3,400 characters",
  "show-1 2 0 0 7 – 1 image, 8 video seconds",
];

/** The lines of its file, without the columns that are 0. */
const LINES: readonly Readonly<Record<string, string>>[] = [
  { model: "", refused: "20", unknown_model: "20" },
  { model: "draw-1", requests: "6", images: "12" },
  { model: "hear-1", requests: "3", audio_seconds: "95" },
  {
    model: "llama3.2:70b",
    input_tokens: "7",
    output_tokens: "9",
    requests: "1500",
    failed: "5",
    refused: "18",
    server: "5",
    requests_per_minute: "10",
    "tokens_per_day.owner": "8",
  },
  { model: "say-1", requests: "4", characters: "3400" },
  {
    model: "show-1",
    requests: "2",
    input_tokens: "7",
    images: "1",
    video_seconds: "8",
  },
];

/** A console whose owner has used a key much, and another one a little. */
async function startUsed() {
  const site = await startConsole();
  const owner = await routeOwner(site, 1);
  const { ownerId, keyId } = owner;
  const key = { ownerId, keyId };
  const nowMs = site.deps.now();
  for (const [model, counts] of Object.entries(USE_BY_MODEL)) {
    await countUse(site, key, { atMs: nowMs, model, counts });
  }
  const earlierMs = nowMs - EARLIER_MS;
  await countUse(site, key, { atMs: earlierMs, counts: { requests: 3 } });
  const other = await storedKey(site, ownerId, { description: "=1+1" });
  const little = { requests: 2, promptTokens: 4 };
  await countUse(site, { ownerId, keyId: other.id }, {
    atMs: nowMs,
    model: "small-1",
    counts: little,
  });
  const day = usageDay(nowMs).replace(/(\d{4})(\d\d)(\d\d)/, "$1-$2-$3");
  const hour = { day, hour_utc: usageHour(nowMs) };
  return { site, owner, key, otherId: other.id, hour };
}

Deno.test("usage by model and the reasons of failures are the same on pages and in files", async () => {
  const { site, owner: { client, keyId }, hour } = await startUsed();
  await using _ = site;
  for (const path of [`/keys/${keyId}`, "/usage"]) {
    const text = await textOf(client, path);
    for (const part of SHOWN) assert.ok(text.includes(`${part} `), part);
    assert.equal(text.includes("small-1 2 0 0 4 0"), path === "/usage");
  }
  const columns = { key_id: keyId, description: "Secret project 1" };
  const lines = await fileOf(client, `/keys/${keyId}/export.csv`);
  const [earlier, ...ofHour] = lines.map(counted);
  assert.partialDeepStrictEqual(earlier, { ...columns, requests: "3" });
  assert.deepEqual(
    ofHour.map((line) => ({ ...line, key: "" })),
    LINES.map((line) => ({
      ...hour,
      ...columns,
      key: "",
      endpoint: "",
      ...line,
    })),
  );
});

Deno.test("usage by endpoint has what was cached, and what earlier versions counted", async () => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const atMs = site.deps.now();
  const count = (counts: UseCounts, endpoint?: UsageEndpoint) =>
    countUse(site, { ownerId, keyId }, {
      atMs,
      counts,
      model: "small-1",
      ...endpoint && { endpoint },
    });
  await count({
    requests: 2,
    promptTokens: 100,
    cachedTokens: 80,
    cacheWriteTokens: 10,
  }, "messages");
  await count({ requests: 1, promptTokens: 5, refused: 4 }, "embeddings");
  await count({ requests: 3 });
  const text = await textOf(client, "/usage");
  for (
    const part of [
      "Tokens read from caches 80 Tokens written to caches 10",
      "small-1 6 0 4 105 0 80 10",
      "Messages 2 0 0 100 0 80 10",
      "Embeddings 1 0 4 5 0 0 0",
      "No known endpoint 3 0 0 0 0 0 0",
    ]
  ) assert.ok(text.includes(`${part} `), part);
  const lines = await fileOf(client, "/usage/export.csv");
  const rows = lines.map((line) =>
    [
      line.endpoint,
      line.requests,
      line.cached_tokens,
      line.cache_write_tokens,
    ].join()
  );
  assert.deepEqual(rows, [",3,0,0", "embeddings,1,0,0", "messages,2,80,10"]);
});

Deno.test("the usage of a deleted key stays in the owner's file, without its name", async () => {
  const { site, owner: { client, email }, key, otherId, hour } =
    await startUsed();
  await using _ = site;
  const lines = await fileOf(client, `/keys/${key.keyId}/export.csv`);
  const actor = { by: email, ip: "" };
  await site.deps.keys.delete({ ...key, version: null, actor });
  const [ofOther, ...deleted] = await fileOf(client, "/usage/export.csv");
  assert.partialDeepStrictEqual(counted(ofOther ?? {}), {
    ...hour,
    key_id: otherId,
    model: "small-1",
    requests: "2",
    input_tokens: "4",
    description: `"'=1+1"`,
  });
  const gone = { key_id: "", key: "", description: "deleted keys and Try it" };
  assert.deepEqual(deleted, lines.map((line) => ({ ...line, ...gone })));
});

/** Uses of the newer key, unless of the old one. */
const USES = [
  {
    hoursAgo: 0,
    counts: {
      requests: 1_234,
      errors: 56,
      promptTokens: 1_234_567,
      completionTokens: 654_321,
    },
  },
  {
    hoursAgo: 20,
    counts: {
      requests: 100,
      errors: 4,
      promptTokens: 1_000,
      completionTokens: 2_000,
    },
  },
  {
    hoursAgo: 12 * 24,
    isOld: true,
    counts: {
      requests: 5_000,
      errors: 40,
      promptTokens: 70_000,
      completionTokens: 80_000,
    },
  },
  {
    hoursAgo: 40 * 24,
    isOld: true,
    counts: {
      requests: 9_000,
      errors: 90,
      promptTokens: 90_000,
      completionTokens: 90_000,
    },
  },
];

/** Fails unless the tiles and the table of a page have the same totals. */
function checkTotals(page: string, bars: number, totals: readonly string[]) {
  const tiles = [...page.matchAll(/<dd>([\d,]+)<\/dd>/g)].map(([, n]) => n);
  assert.deepEqual(tiles, totals);
  const [table = ""] = /Show as a table.*?<\/table>/s.exec(page) ?? [];
  const cells = [...table.matchAll(/<td class="num"[^>]*>([\d,]+)</g)]
    .map(([, cell = ""]) => Number(cell.replaceAll(",", "")));
  assert.equal(cells.length, bars * totals.length);
  const sums = totals.map((_, column) =>
    cells.filter((_, at) => at % totals.length === column)
      .reduce((sum, cell) => sum + cell, 0).toLocaleString("en-US")
  );
  assert.deepEqual(sums, totals);
  assert.equal(page.match(/<title>[^<]*: Successful/g)?.length, bars);
}

Deno.test("the lines of a chart have round numbers, few, and reach above its bars", () => {
  const cases = [
    { most: 0, ticks: [0, 1] },
    { most: 1, ticks: [0, 1] },
    { most: 3, ticks: [0, 1, 2, 3] },
    { most: 5, ticks: [0, 2, 4, 6] },
    { most: 47, ticks: [0, 20, 40, 60] },
    { most: 100, ticks: [0, 50, 100] },
    { most: 1_234_567, ticks: [0, 500_000, 1_000_000, 1_500_000] },
  ];
  for (const { most, ticks } of cases) assert.deepEqual(ticksOf(most), ticks);
});

Deno.test("usage by hours and by days: totals are the sums of the table, each row has a bar", async () => {
  await using site = await startConsole();
  // Half past the hour: no hour ends while its numbers are compared.
  site.clock.nowMs += HOUR_MS / 2 - site.deps.now() % HOUR_MS;
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const { id: oldId } = await storedKey(site, ownerId);
  for (const { hoursAgo, isOld, counts } of USES) {
    const key = { ownerId, keyId: isOld ? oldId : keyId };
    const atMs = site.deps.now() - hoursAgo * HOUR_MS;
    await countUse(site, key, { atMs, counts });
  }
  const cases = [
    {
      path: "/usage",
      bars: 24,
      totals: ["1,334", "60", "0", "1,235,567", "656,321"],
      start:
        /class="between faint times"><span>\d\d:00<.*<span>Now<.*Hours in UTC/s,
    },
    {
      path: "/usage?range=30d",
      bars: 30,
      totals: ["6,334", "100", "0", "1,305,567", "736,321"],
      start:
        /class="between faint times"><span>\w{3} \d+<.*<span>Today<.*Days in UTC/s,
    },
    {
      path: `/keys/${oldId}?range=30d`,
      bars: 30,
      totals: ["5,000", "40", "0", "70,000", "80,000"],
      start: /<span>6K<\/span><span>4K<\/span><span>2K<\/span><span>0</,
    },
  ];
  for (const { path, bars, totals, start } of cases) {
    const { text } = await client.get(path);
    checkTotals(text, bars, totals);
    assert.match(text, start);
  }
  const recent = (await client.get("/usage")).text;
  assert.match(recent, /: Successful 1,178, Failed 56, Refused 0</);
  assert.match(
    await textOf(client, `/keys/${oldId}`),
    /No requests in the last 24 hours/,
  );
});
