/** How requests are found in the logs of all accounts. */
import assert from "node:assert/strict";
import { requestLogKey } from "@gateway/shared/keys/record";
import { decodeRow } from "@gateway/shared/keys/request_row";
import { startConsole, type TestConsole } from "../../console_fixture.ts";
import { logRequest } from "../../usage_fixture.ts";
import {
  type FoundRequest,
  RequestLog,
  type RequestPage,
  type RequestQuery,
} from "./request_log.ts";
import { parseMoment, parseRequestQuery } from "./request_query.ts";
import { ANY } from "./request_query_fixture.ts";

const idOf = (n: number) => `req_${n.toString(16).padStart(32, "0")}`;
const accountOf = (n: number) => `own_${String(n).padStart(20, "0")}`;
const keyOf = (n: number) => `key_${String(n).padStart(20, "0")}`;

/** The numbers of the requests that were found. */
const numbersIn = (rows: readonly FoundRequest[]): number[] =>
  rows.map(({ requestId }) => Number(`0x${requestId.slice(4)}`));

/** Follows the pages of a search to their end. */
async function allOf(
  log: Pick<RequestLog, "search">,
  query: RequestQuery,
): Promise<FoundRequest[]> {
  const rows: FoundRequest[] = [];
  let after: string | null = "";
  while (after !== null) {
    const page: RequestPage = await log.search({ ...query, after });
    assert.ok(page.rows.length <= query.rows);
    rows.push(...page.rows);
    after = page.next;
  }
  return rows;
}

const REQUESTS = 60;

/** Logs requests of three accounts with two keys each, one a second, by turns. */
async function logMany(site: TestConsole) {
  for (let n = 0; n < REQUESTS; n++) {
    const [account, key] = [n % 3, n % 6];
    await logRequest(site, { ownerId: accountOf(account), keyId: keyOf(key) }, {
      requestId: idOf(n),
      timeMs: 1_000 * (n + 1),
      writtenMs: 1_000 * (n + 1) + 400,
      outcome: n % 10 === 9 ? "slow" : "refused",
      model: n % 4 === 0 ? "small:1" : "gpt",
      code: n % 2 === 0 ? "model_not_found" : "rate_limit_exceeded",
      reason: n % 2 === 0 ? "unknown_model" : "requests_per_minute",
      firstByteMs: n === 9 ? 0 : null,
    });
  }
}

Deno.test("the log of an account names its keys, and a search finds those of some", async () => {
  await using site = await startConsole();
  const { requests } = site.deps;
  await logMany(site);
  const keys = [keyOf(1), keyOf(4)];
  assert.deepEqual(await requests.keyIds(accountOf(1)), new Set(keys));
  assert.deepEqual(await requests.keyIds("own_unknown"), new Set());
  const numbersOf = async (keyIds: readonly string[]) =>
    new Set(numbersIn(await allOf(requests, { ...ANY, keyIds })));
  const all = Array.from({ length: REQUESTS }, (_, n) => n);
  const theirs = all.filter((n) => n % 3 === 1);
  assert.deepEqual(await numbersOf([...keys, "key_gone"]), new Set(theirs));
  for (const none of [[], ["key_gone"]]) {
    assert.deepEqual(await numbersOf(none), new Set());
  }
});

Deno.test("a search finds by time, account, key, model, code, reason, request and outcome", async () => {
  await using site = await startConsole();
  const { requests } = site.deps;
  assert.deepEqual(await allOf(requests, ANY), []);
  await logMany(site);
  const newestFirst = Array.from({ length: REQUESTS }, (_, n) => n).reverse();
  const cases: {
    query: Partial<RequestQuery>;
    has: (n: number) => boolean;
  }[] = [
    { query: {}, has: () => true },
    { query: { rows: 1 }, has: () => true },
    { query: { rows: 7 }, has: () => true },
    { query: { ownerId: accountOf(1), rows: 7 }, has: (n) => n % 3 === 1 },
    { query: { keyIds: [keyOf(4)] }, has: (n) => n % 6 === 4 },
    { query: { model: "small:1" }, has: (n) => n % 4 === 0 },
    { query: { model: "no such model" }, has: () => false },
    { query: { code: "model_not_found" }, has: (n) => n % 2 === 0 },
    { query: { code: "requests_per_minute" }, has: (n) => n % 2 === 1 },
    { query: { code: "no_such_code" }, has: () => false },
    { query: { outcome: "slow" }, has: (n) => n % 10 === 9 },
    { query: { outcome: "cut" }, has: () => false },
    { query: { requestId: idOf(41) }, has: (n) => n === 41 },
    { query: { requestId: idOf(9_999) }, has: () => false },
    { query: { fromMs: 50_000 }, has: (n) => n >= 49 },
    { query: { toMs: 50_000 }, has: (n) => n < 49 },
    {
      query: { ownerId: accountOf(2), fromMs: 10_000, toMs: 20_000, rows: 2 },
      has: (n) => n % 3 === 2 && n >= 9 && n < 19,
    },
  ];
  for (const { query, has } of cases) {
    const found = await allOf(requests, { ...ANY, ...query });
    const wanted = newestFirst.filter(has);
    assert.deepEqual(numbersIn(found), wanted, JSON.stringify(query));
  }
  const query = { ...ANY, requestId: idOf(9) };
  assert.deepEqual((await requests.search(query)).rows, [{
    timeMs: 10_000,
    requestId: idOf(9),
    ownerId: accountOf(0),
    keyId: keyOf(3),
    outcome: "slow",
    status: 429,
    code: "rate_limit_exceeded",
    reason: "requests_per_minute",
    param: "",
    model: "gpt",
    endpoint: "chat",
    durationMs: 3,
    firstByteMs: 0,
    backend: "",
    attempts: 0,
    clientAddress: "192.0.2.77",
    more: 0,
    budget: "",
  }]);
  await assert.rejects(requests.search({ ...ANY, after: "1-1" }), /cursor/);
});

Deno.test("a row of an earlier version says nothing of a budget", () => {
  const row =
    '[1,"r","k","refused",429,"c","budget_day","","m","",1,null,"",0,"a",0';
  assert.equal(decodeRow(`${row}]`).budget, "");
  assert.equal(decodeRow(`${row},"b"]`).budget, "b");
  assert.throws(() => decodeRow(`${row},1]`), /lacks its text 16/);
});

Deno.test("a search sees what was logged since the last one, and nothing that has gone", async () => {
  await using site = await startConsole();
  const { requests, redis } = site.deps;
  await logMany(site);
  const ofOne = { ...ANY, ownerId: accountOf(0) };
  assert.equal((await allOf(requests, ofOne)).length, REQUESTS / 3);
  const principal = { ownerId: accountOf(0), keyId: keyOf(0) };
  await logRequest(site, principal, {
    requestId: idOf(99),
    writtenMs: 100_000,
  });
  for (const query of [ANY, ofOne]) {
    const [newest] = (await requests.search(query)).rows;
    assert.equal(newest?.requestId, idOf(99));
  }
  const log = requestLogKey(accountOf(0));
  await redis.command(["XTRIM", log, "MAXLEN", "5"]);
  assert.equal((await allOf(requests, ofOne)).length, 5);
  const both = await Promise.all([
    allOf(requests, ANY),
    allOf(requests, ofOne),
  ]);
  assert.deepEqual(both.map(({ length }) => length), [45, 5]);
  await redis.command(["DEL", log]);
  assert.deepEqual(await allOf(requests, ofOne), []);
  // An account without any new rows is looked at from time to time.
  await redis.command(["DEL", requestLogKey(accountOf(1))]);
  await redis.command(["ZREM", "logged:accounts", accountOf(1)]);
  site.clock.nowMs += 600_000;
  assert.equal((await allOf(requests, ANY)).length, REQUESTS / 3);
});

Deno.test("beyond its bound of memory, the log forgets the oldest rows and says so", async () => {
  await using site = await startConsole();
  await logMany(site);
  const { redis, now } = site.deps;
  const requests = new RequestLog({ redis, now, rowsMax: 40 });
  const { rows, missingBeforeMs } = await requests.search(ANY);
  assert.ok(rows.length <= 40 && rows.length >= 20, `${rows.length} rows`);
  assert.equal(rows[0]?.requestId, idOf(REQUESTS - 1));
  const missing = missingBeforeMs ?? assert.fail();
  assert.ok(missing > 0 && missing < 60_000);
  const recent = await requests.search({ ...ANY, fromMs: missing + 1 });
  assert.equal(recent.missingBeforeMs, null);
});

const NOW_MS = Date.UTC(2026, 10, 28, 12);

Deno.test("times are read in UTC, or as a time before now", () => {
  const cases: { text: string; timeMs: number | null }[] = [
    { text: "2026-11-28", timeMs: Date.UTC(2026, 10, 28) },
    { text: "2026-11-28T14:30", timeMs: Date.UTC(2026, 10, 28, 14, 30) },
    { text: "2026-11-28 14:30:05Z", timeMs: Date.UTC(2026, 10, 28, 14, 30, 5) },
    { text: "30m", timeMs: NOW_MS - 1_800_000 },
    { text: "2 h", timeMs: NOW_MS - 7_200_000 },
    { text: "7d", timeMs: NOW_MS - 7 * 86_400_000 },
    { text: "10000d", timeMs: null },
    { text: "yesterday", timeMs: null },
    { text: "2026-02-30T00:00:00+01:00", timeMs: null },
    { text: "2026-13-01", timeMs: null },
    { text: "", timeMs: null },
  ];
  for (const { text, timeMs } of cases) {
    assert.equal(parseMoment(text, NOW_MS), timeMs, text);
  }
});

Deno.test("a search that cannot be read says which field is wrong, and how", () => {
  const none = {
    from: "",
    until: "",
    key: "",
    model: "",
    code: "",
    request: "",
    outcome: "",
  };
  const cases: { texts: Partial<typeof none>; says: RegExp }[] = [
    { texts: { from: "soon" }, says: /^from Not a time: write 2026-/ },
    { texts: { until: "2026" }, says: /^until Not a time/ },
    { texts: { from: "1h", until: "2h" }, says: /^until It is not after/ },
    { texts: { key: "sk-Cg1234" }, says: /^key Not the id of a key/ },
    { texts: { request: "req_12" }, says: /^request .* 32 hexadecimal/ },
    { texts: { outcome: "lost" }, says: /^outcome One of refused, failed/ },
    { texts: { model: "m".repeat(201) }, says: /^model Too long: at most 200/ },
  ];
  for (const { texts, says } of cases) {
    const query = parseRequestQuery({ ...none, ...texts }, NOW_MS);
    assert.ok("message" in query, JSON.stringify(texts));
    assert.match(`${query.field} ${query.message}`, says);
  }
  const found = parseRequestQuery(
    { ...none, request: idOf(171).toUpperCase() },
    NOW_MS,
  );
  assert.ok(!("message" in found) || assert.fail(found.message));
});
