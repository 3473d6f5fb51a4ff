import assert from "node:assert/strict";
import { usageDay, usageHour } from "@gateway/shared/keys/limiter_state";
import { failedKey } from "@gateway/shared/keys/record";
import {
  fail,
  startConsole,
  storedKey,
  type TestClient,
  useKey,
} from "../console_fixture.ts";
import { routeOwner } from "../routes_fixture.ts";

/**
 * Guarantee: owners see what was used and why requests failed, on pages and in files,
 * in the same numbers.
 */

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

Deno.test("usage by model and the reasons of failures are the same on the pages and in the files, with deleted keys", async () => {
  await using site = await startConsole();
  const { client, ownerId, keyId, email } = await routeOwner(site, 1);
  const { id } = await storedKey(site, ownerId, { description: "=1+1" });
  const [nowMs, key] = [site.deps.now(), { ownerId, keyId }];
  const earlierMs = nowMs - 40 * HOUR_MS;
  await useKey(site, key, nowMs, {
    requests: 1_500,
    errors: 5,
    refused: 18,
    server: 5,
    promptTokens: 7,
    completionTokens: 9,
    requests_per_minute: 10,
    "tokens_per_day.owner": 8,
  }, "llama3.2:70b");
  await useKey(site, key, nowMs, { refused: 20, unknown_model: 20 });
  const made = [
    ["draw-1", { requests: 6, images: 12 }],
    ["hear-1", { requests: 3, audioSeconds: 95 }],
    ["say-1", { requests: 4, characters: 3_400 }],
    // Of an id that was given to a model of another kind.
    ["show-1", { requests: 2, images: 1, videoSeconds: 8, promptTokens: 7 }],
  ] as const;
  for (const [model, counts] of made) {
    await useKey(site, key, nowMs, counts, model);
  }
  await useKey(site, key, earlierMs, { requests: 3 });
  const other = { ownerId, keyId: id };
  await useKey(site, other, nowMs, { requests: 2, promptTokens: 4 }, "small-1");

  const shown = [
    "Requests per minute 10 Tokens per day, all your keys together 8",
    "Unknown model 20 The service or the model server failed 5",
    "Images 13 Characters 3,400 Audio seconds 95 Video seconds 8",
    "llama3.2:70b 1,500 5 18 7 9 –",
    "Refused 38",
    "draw-1 6 0 0 – – 12 images",
    "hear-1 3 0 0 – – 95 audio seconds",
    "say-1 4 0 0 – – 3,400 characters",
    "show-1 2 0 0 7 – 1 image, 8 video seconds",
  ];
  for (const path of [`/keys/${keyId}`, "/usage"]) {
    const text = await textOf(client, path);
    for (const part of shown) assert.ok(text.includes(`${part} `), part);
    assert.equal(text.includes("small-1 2 0 0 4 0"), path === "/usage");
  }
  const day = usageDay(nowMs).replace(/(\d{4})(\d\d)(\d\d)/, "$1-$2-$3");
  const hour = { day, hour_utc: usageHour(nowMs) };
  const named = { key_id: keyId, description: "Secret project 1" };
  const lines = await fileOf(client, `/keys/${keyId}/export.csv`);
  const [earlier, ...ofHour] = lines.map(counted);
  assert.partialDeepStrictEqual(earlier, { ...named, requests: "3" });
  const expected = [
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
  assert.deepEqual(
    ofHour.map((line) => ({ ...line, key: "" })),
    expected.map((line) => ({ ...hour, ...named, key: "", ...line })),
  );

  const actor = { by: email, ip: "" };
  await fail(site, key, {});
  await site.deps.keys.delete({ ...key, version: null, actor });
  const { redis } = site.deps;
  assert.equal(await redis.command(["EXISTS", failedKey(key)]), 0);
  const [ofOther, ...deleted] = await fileOf(client, "/usage/export.csv");
  assert.partialDeepStrictEqual(counted(ofOther ?? {}), {
    ...hour,
    key_id: id,
    model: "small-1",
    requests: "2",
    input_tokens: "4",
    description: `"'=1+1"`,
  });
  const gone = { key_id: "", key: "", description: "deleted keys and Try it" };
  assert.deepEqual(
    deleted,
    lines.map((line) => ({ ...line, ...gone })),
    "what remains is that of the deleted key",
  );
});

Deno.test("the last refused and failed requests of a key are listed, newest first, and what clients sent is text", async () => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const list = `/keys/${keyId}/requests`;
  assert.match(await textOf(client, list), /None were refused or failed/);
  const [nowMs, key] = [site.deps.now(), { ownerId, keyId }];
  await fail(site, key, { timeMs: nowMs, requestId: "req_second" });
  await fail(site, key, {
    timeMs: nowMs - 1_000,
    requestId: "req_first",
    status: 400,
    reason: "invalid_request",
    code: "invalid_type",
    param: "n",
    model: "<b>gpt</b>",
  });
  await fail(site, key, {
    timeMs: nowMs + 1_000,
    requestId: "req_third",
    model: null,
    reason: "of_a_later_version",
    code: null,
  });
  const { text } = await client.get(list);
  assert.ok(text.includes("&lt;b&gt;gpt&lt;/b&gt;"));
  const plain = await textOf(client, list);
  assert.match(
    plain,
    /req_third Of a later version 429 – .*req_second .*req_first Invalid request Field: n 400 invalid_type /,
  );
});

Deno.test("a day by hours and a month by days: the totals are the sums of the table, and a chart has a bar for each", async () => {
  await using site = await startConsole();
  // Half past the hour: no hour ends while its numbers are compared.
  site.clock.nowMs += HOUR_MS / 2 - site.deps.now() % HOUR_MS;
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const { id: old } = await storedKey(site, ownerId);
  const uses = [
    [keyId, 0, 1_234, 56, 1_234_567, 654_321],
    [keyId, 20, 100, 4, 1_000, 2_000],
    [old, 12 * 24, 5_000, 40, 70_000, 80_000],
    [old, 40 * 24, 9_000, 90, 90_000, 90_000],
  ] as const;
  for (const [keyId, agoHours, ...counts] of uses) {
    const [requests, errors, promptTokens, completionTokens] = counts;
    const atMs = site.deps.now() - agoHours * HOUR_MS;
    await useKey(site, { ownerId, keyId }, atMs, {
      requests,
      errors,
      promptTokens,
      completionTokens,
    });
  }
  const day = ["1,334", "60", "0", "1,235,567", "656,321"];
  const month = ["6,334", "100", "0", "1,305,567", "736,321"];
  const cases = [
    ["/usage", 24, day, /class="between faint"><time[^>]*>.{16} UTC</],
    ["/usage?range=30d", 30, month, /class="between faint"><span>30 days ago/],
    [`/keys/${old}?range=30d`, 30, ["5,000", "40", "0", "70,000", "80,000"]],
  ] as const;
  for (const [path, bars, totals, start = /days in UTC/] of cases) {
    const { text } = await client.get(path);
    const tiles = [...text.matchAll(/<dd>([\d,]+)<\/dd>/g)].map(([, n]) => n);
    assert.deepEqual(tiles, totals);
    const [table = ""] = /Show as a table.*?<\/table>/s.exec(text) ?? [];
    const cells = [...table.matchAll(/<td class="num"[^>]*>([\d,]+)</g)]
      .map(([, cell = ""]) => Number(cell.replaceAll(",", "")));
    assert.equal(cells.length, bars * totals.length);
    const sums = totals.map((_, column) =>
      cells.filter((_, at) => at % totals.length === column)
        .reduce((sum, cell) => sum + cell, 0).toLocaleString("en-US")
    );
    assert.deepEqual(sums, totals);
    assert.equal(text.match(/<title>[^<]*: Successful/g)?.length, bars);
    assert.match(text, start);
  }
  const recent = (await client.get("/usage")).text;
  assert.match(recent, /: Successful 1,178, Failed 56, Refused 0</);
  assert.match(
    await textOf(client, `/keys/${old}`),
    /No requests in the last 24 hours/,
  );
});
