/**
 * Guarantee: owners find why their requests were refused, operators those of everybody,
 * on pages, in files and with a command.
 */
import assert from "node:assert/strict";
import type { TestClient } from "../../../client_fixture.ts";
import { commandDeps, runCommand } from "../../../cli/commands_fixture.ts";
import { REQUESTS } from "../../../cli/requests.ts";
import { startConsole, type TestConsole } from "../../../console_fixture.ts";
import { routeOwner } from "../../../routes_fixture.ts";
import { countUse, logRequest } from "../../../usage_fixture.ts";

const idOf = (digit: string) => `req_${digit.repeat(32)}`;

/** The text of a page without its tags. */
const textOf = async (client: TestClient, path: string) =>
  (await client.get(path)).text.replaceAll("<wbr/>", "")
    .replace(/<[^>]*>/g, " ").replace(/\s+/g, " ");

/** Two owners with a request each, and an operator. */
async function startLogged() {
  const site = await startConsole();
  const operator = await routeOwner(site, 0);
  await site.deps.owners.giveRole(operator.ownerId);
  const [ada, bob] = [await routeOwner(site, 1), await routeOwner(site, 2)];
  const nowMs = site.deps.now();
  const time = { timeMs: nowMs, writtenMs: nowMs };
  await logRequest(site, ada, { ...time, requestId: idOf("a"), more: 1_234 });
  await logRequest(site, bob, {
    ...time,
    requestId: idOf("b"),
    outcome: "failed",
    status: 502,
    code: "upstream_error",
    reason: "server",
    param: "n",
    model: "<b>gpt</b>",
    backend: "gpu-1",
    attempts: 2,
    durationMs: 61_000,
  });
  return { site, operator, ada, bob, nowMs };
}

Deno.test("API1: an owner finds only the requests of the own account, an operator all of them", async () => {
  const { site, operator, ada, bob } = await startLogged();
  await using _ = site;
  const own = await textOf(ada.client, "/requests");
  assert.match(
    own,
    /req_a{32} Refused Tokens per minute; and 1,234 more in this second 429 rate_limit_exceeded Secret project 1/,
  );
  assert.ok(!own.includes(idOf("b")));
  for (const query of [`account=${bob.ownerId}`, `key=${bob.keyId}`]) {
    const page = await textOf(ada.client, `/requests?${query}`);
    assert.ok(!page.includes(idOf("b")), query);
  }
  assert.equal((await ada.client.get("/people/requests")).status, 404);
  const all = (await operator.client.get("/people/requests")).text;
  assert.ok(all.includes(idOf("a")) && all.includes(idOf("b")));
  assert.ok(all.includes("&lt;b&gt;gpt&lt;/b&gt;"), "text of clients is text");
  assert.ok(all.includes(`href="/people/${bob.ownerId}/keys/${bob.keyId}"`));
  for (const account of [bob.email, bob.ownerId]) {
    const path = `/people/requests?account=${account}&from=1h&code=server`;
    const page = await textOf(operator.client, path);
    assert.match(page, /req_b{32} Failed .*; Field: n 502 upstream_error/);
    assert.match(page, /gpu-1, attempt 2 From 192\.0\.2\.77/);
    assert.ok(!page.includes(idOf("a")));
  }
});

Deno.test("a search with a mistake says what to correct, as a page and as a file", async () => {
  const { site, operator, ada } = await startLogged();
  await using _ = site;
  const cases = [
    { query: "from=yesterday", says: /From: Not a time: write 2026-11-28/ },
    { query: "from=1h&until=2d", says: /Until: It is not after the beginning/ },
    { query: "key=sk-1", says: /Key: Not the id of a key/ },
    { query: "request=12", says: /Request: Not the id of a request/ },
    { query: "outcome=gone", says: /What happened: One of refused/ },
    { query: "after=1-2", says: /This page of the list does not exist/ },
  ];
  for (const { query, says } of cases) {
    const page = await ada.client.get(`/requests?${query}`);
    assert.equal(page.status, 400, query);
    assert.match(page.text, says, query);
  }
  const file = await ada.client.get("/requests.csv?from=yesterday");
  assert.equal(file.status, 400);
  assert.match(file.text, /From: Not a time/);
  const { status, text } = await operator.client.get(
    "/people/requests?account=nobody@example.org",
  );
  assert.equal(status, 400);
  assert.match(text, /There is no account with this address or id/);
});

Deno.test("the file of a search has what the page has, and formulas are text", async () => {
  const { site, operator, ada, nowMs } = await startLogged();
  await using _ = site;
  await logRequest(site, ada, {
    timeMs: nowMs,
    writtenMs: nowMs + 1,
    requestId: idOf("c"),
    model: "=1+1",
  });
  const { text, headers } = await ada.client.get("/requests.csv?from=7d");
  assert.match(headers.get("content-disposition") ?? "", /requests\.csv/);
  const [head = "", ...lines] = text.replace(/^\uFEFF/, "").trimEnd()
    .split("\r\n");
  assert.match(head, /^time,request_id,account_id,key_id,outcome,reason,/);
  assert.equal(lines.length, 2);
  assert.match(
    lines[0] ?? "",
    /req_c{32}.*,"'=1\+1",3,,,0,192\.0\.2\.77,0,,,,,$/,
  );
  const all = await operator.client.get("/people/requests.csv");
  assert.equal(all.text.trimEnd().split("\r\n").length, 4);
});

Deno.test("a refusal by a budget says what was spent, held and allowed, and when it is reset", async () => {
  const { site, ada, nowMs } = await startLogged();
  await using _ = site;
  await logRequest(site, ada, {
    timeMs: nowMs,
    writtenMs: nowMs + 1,
    requestId: idOf("d"),
    code: "insufficient_quota",
    reason: "budget_day",
    budget: "budget_day 2500000000 2500000001 7 1764460800000",
  });
  const page = await textOf(ada.client, "/requests?code=budget_day");
  assert.match(
    page,
    /Budget per day. Of \$2\.50 for this day, \$2\.50 were spent and \$0\.000000007 held by running requests; reset at/,
  );
  const file = (await ada.client.get("/requests.csv?code=budget_day")).text;
  assert.match(
    file,
    /,budget_day,2\.500000001,0\.000000007,2\.5,2025-11-30T00:00:00\.000Z\r\n$/,
  );
  const found = await run(site, ["--code", "insufficient_quota"]);
  assert.match(
    found.text,
    /budget_day: 2\.500000001 of 2\.5 spent, 0\.000000007 held/,
  );
  assert.partialDeepStrictEqual(found.requests[0], {
    budget: "budget_day",
    budget_spent: "2.500000001",
    budget_reset_at: "2025-11-30T00:00:00.000Z",
  });
});

Deno.test("usage leads to the requests behind its reasons", async () => {
  const { site, operator, ada, nowMs } = await startLogged();
  await using _ = site;
  const { ownerId, keyId } = ada;
  const counts = { refused: 3, tokens_per_minute: 3 };
  await countUse(site, ada, { atMs: nowMs, counts });
  const cases = [
    { client: ada.client, at: `/keys/${keyId}`, to: `/requests?key=${keyId}` },
    { client: ada.client, at: "/usage", to: "/requests" },
    {
      client: operator.client,
      at: `/people/${ownerId}`,
      to: `/people/requests?account=${ownerId}`,
    },
    {
      client: operator.client,
      at: `/people/${ownerId}/keys/${keyId}`,
      to: `/people/requests?account=${ownerId}&amp;key=${keyId}`,
    },
  ];
  for (const { client, at, to } of cases) {
    const { text } = await client.get(at);
    assert.ok(text.includes(`href="${to}">Show requests`), at);
  }
});

/** Runs `requests` with these arguments. */
async function run(site: TestConsole, args: readonly string[]) {
  const line = ["requests", ...args];
  const answer = await runCommand(
    { requests: REQUESTS },
    line,
    commandDeps(site),
  );
  const json: { requests: Record<string, unknown>[] } = JSON.parse(
    JSON.stringify(answer.json),
  );
  return { ...json, text: answer.text };
}

Deno.test("requests: the command finds what the page finds", async () => {
  const { site, ada, bob } = await startLogged();
  await using _ = site;
  const all = await run(site, []);
  assert.match(all.text, /^TIME +WHAT +REASON +STATUS/);
  assert.match(all.text, /refused \(\+1234\) +tokens_per_minute +429/);
  assert.equal(all.requests.length, 2);
  const one = await run(site, ["--owner", ada.email, "--from", "1h"]);
  assert.deepEqual(one.requests.map((row) => row.request_id), [idOf("a")]);
  const [failed] = (await run(site, ["--outcome", "failed"])).requests;
  assert.partialDeepStrictEqual(failed, {
    account_id: bob.ownerId,
    key_id: bob.keyId,
    duration_ms: 61_000,
    server: "gpu-1",
  });
  const first = await run(site, ["--rows", "1"]);
  const [, cursor = ""] = /--after "([^"]+)"/.exec(first.text) ?? [];
  const second = await run(site, ["--rows", "1", "--after", cursor]);
  assert.notDeepEqual(first.requests, second.requests);
  const none = await run(site, ["--code", "no_such_code"]);
  assert.match(none.text, /No requests found/);
  await assert.rejects(run(site, ["--from", "soon"]), {
    name: "UsageError",
    message: /^--from: Not a time/,
  });
  const adminId = ada.ownerId;
  const by = { by: ada.email, ip: "", as: "operator" as const };
  const actor = { ...by, ownerId: adminId };
  const name = "Search";
  const { id } = await site.deps.projects.create(actor, { name, adminId });
  const time = { timeMs: site.deps.now(), writtenMs: site.deps.now() };
  const key = { ownerId: id, keyId: ada.keyId };
  await logRequest(site, key, { ...time, requestId: idOf("e") });
  const ofProject = await run(site, ["--project", name]);
  assert.deepEqual(
    ofProject.requests.map((row) => row.request_id),
    [idOf("e")],
  );
  await assert.rejects(run(site, ["--project", name, "--owner", ada.email]), {
    name: "UsageError",
  });
  await assert.rejects(run(site, ["--owner", "nobody@example.org"]), {
    name: "CommandRefused",
  });
});
