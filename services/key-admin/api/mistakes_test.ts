/** Guarantee: a mistake is named with its place, and nothing is changed. */
import assert from "node:assert/strict";
import { type Sent, startAdmin as start } from "./admin_fixture.ts";

/** A request, of a ":key", an ":owner" and a ":project", and what it is told. */
const MISTAKES: { line: string; sent?: Sent; status: number; says: RegExp }[] =
  [
    {
      line: "PUT /keys/:key",
      sent: { body: "{" },
      status: 400,
      says: /not JSON/,
    },
    {
      line: "PUT /keys/:key",
      sent: { body: {} },
      status: 400,
      says: /description/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: [] },
      status: 400,
      says: /object/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { hash: "x" } },
      status: 400,
      says: /hash/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { limits: { rpm: 1 } } },
      status: 400,
      says: /no such limit.*"param":"limits\.rpm"/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { limits: { concurrency: -1 } } },
      status: 400,
      says: /whole number/,
    },
    ...[-1, 3_601, 1.5, "600"].map((keep_seconds) => ({
      line: "PATCH /keys/:key",
      sent: { body: { keep_seconds } },
      status: 400,
      says: /from 0 to 3600.*"param":"keep_seconds"/,
    })),
    {
      line: "PATCH /keys/:key",
      sent: { body: { models: ["small"] } },
      status: 400,
      says: /did you mean 'small-1'/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { allowed_cidrs: ["office"] } },
      status: 400,
      says: /office: Not an IP/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { expires_at: "2020-01-01" } },
      status: 400,
      says: /passed/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { description: "x".repeat(300_000) } },
      status: 413,
      says: /at most 262144/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: {}, headers: { "if-match": "3" } },
      status: 400,
      says: /If-Match/,
    },
    {
      line: "POST /keys/:key/rotate",
      sent: { body: { old: "soon" } },
      status: 400,
      says: /One of now/,
    },
    {
      line: "GET /keys/key_00000000000000000000",
      status: 404,
      says: /key does not exist/,
    },
    {
      line: "DELETE /keys/key_00000000000000000000",
      status: 404,
      says: /key does not exist/,
    },
    { line: "GET /keys?rows=10000", status: 400, says: /rows/ },
    { line: "GET /keys?after=x", status: 400, says: /cursor/ },
    { line: "GET /keys?colour=red", status: 400, says: /colour/ },
    {
      line: "GET /keys?sort=colour",
      status: 400,
      says: /One of description, status.*"param":"sort"/,
    },
    {
      line: "GET /owners?sort=--name",
      status: 400,
      says: /One of name.*"param":"sort"/,
    },
    {
      line: "POST /keys/disable",
      sent: { body: { keys: [] } },
      status: 400,
      says: /"param":"keys"/,
    },
    {
      line: "POST /keys/disable",
      sent: { body: { keys: ["sk-1"] } },
      status: 400,
      says: /key_….*"param":"keys\.0"/,
    },
    {
      line: "POST /keys/disable",
      sent: { body: { keys: Array(201).fill("key_00000000000000000000") } },
      status: 400,
      says: /"param":"keys"/,
    },
    {
      line: "POST /keys/disable",
      sent: { body: { keys: ["key_00000000000000000000"] } },
      status: 404,
      says: /no key key_0{20}; nothing was changed/,
    },
    {
      line: "GET /keys?account=own_00000000000000000000",
      status: 404,
      says: /no account/,
    },
    {
      line: "POST /keys",
      sent: { body: { account: "me", description: "x" } },
      status: 400,
      says: /own_…/,
    },
    {
      line: "POST /owners",
      sent: { body: { email: "me" } },
      status: 400,
      says: /e-mail/,
    },
    {
      line: "PATCH /owners/:owner",
      sent: { body: { stop_running: true } },
      status: 400,
      says: /disabled account/,
    },
    {
      line: "GET /owners/prj_00000000000000000000",
      status: 404,
      says: /no owner/,
    },
    {
      line: "PATCH /projects/:owner",
      sent: { body: {} },
      status: 404,
      says: /no project/,
    },
    {
      line: "PUT /projects/:project/members/own_00000000000000000000",
      sent: { body: { role: "admin" } },
      status: 404,
      says: /no owner of this id.*"param":"member"/,
    },
    {
      line: "PUT /projects/:project/members/:owner",
      sent: { body: { role: "boss" } },
      status: 400,
      says: /Roles are admin, member/,
    },
    {
      line: "DELETE /projects/:project/members/:owner",
      status: 404,
      says: /not a member/,
    },
    {
      line: "POST /projects",
      sent: { body: { name: "A", admin: "prj_00000000000000000000" } },
      status: 400,
      says: /own_…/,
    },
    {
      line: "GET /accounts/own_00000000000000000000/audit",
      status: 404,
      says: /no account/,
    },
    { line: "GET /accounts/:owner/audit?after=x", status: 400, says: /cursor/ },
    {
      line: "PUT /accounts/:owner/key_defaults",
      sent: { body: { expires_after_days: 10_000 } },
      status: 400,
      says: /at most 3650.*expires_after_days/,
    },
    {
      line: "PUT /accounts/:owner/key_defaults",
      sent: { body: { models: ["gone-1"] } },
      status: 400,
      says: /no model 'gone-1'/,
    },
    {
      line: "DELETE /owners/:owner/second_factor",
      status: 409,
      says: /no second factor/,
    },
    {
      line: "DELETE /owners/:owner/operator?x=1",
      status: 400,
      says: /x/,
    },
    { line: "DELETE /admin_keys/adm_x", status: 404, says: /no admin key/ },
    {
      line: "POST /admin_keys",
      sent: { body: { description: "A", scopes: ["all"] } },
      status: 400,
      says: /Scopes are keys, accounts/,
    },
    {
      line: "PUT /models/gone/disabled",
      sent: { body: {} },
      status: 404,
      says: /no model of this id/,
    },
    {
      line: "PUT /models/small-1/servers/gone/drained",
      sent: { body: {} },
      status: 404,
      says: /no server of this name/,
    },
    {
      line: "PUT /models/small-1/servers/openai-1/weight",
      sent: { body: { weight: 0 } },
      status: 400,
      says: /weight/,
    },
    {
      line: "DELETE /models/small-1/disabled",
      status: 404,
      says: /no such change/,
    },
    {
      line: "PUT /models/small-1/disabled",
      sent: { body: {}, headers: { "if-match": '"1"' } },
      status: 400,
      says: /has no ETag/,
    },
    {
      line: "GET /requests?from=soon",
      status: 400,
      says: /Not a time.*"from"/,
    },
    { line: "GET /requests.csv?key=sk-1", status: 400, says: /"param":"key"/ },
    { line: "GET /requests?after=1-2", status: 400, says: /cursor/ },
    {
      line: "GET /requests?account=own_00000000000000000000",
      status: 404,
      says: /no account/,
    },
    {
      line: "POST /running/12/stop",
      sent: { body: {} },
      status: 400,
      says: /32 hex/,
    },
    {
      line: `POST /running/req_${"0".repeat(32)}/stop`,
      sent: { body: {} },
      status: 404,
      says: /not run any more/,
    },
    { line: "PUT /owners", sent: { body: {} }, status: 405, says: /GET, POST/ },
    { line: "GET /admin/v2/keys", status: 404, says: /no such path/ },
  ];

Deno.test("mistakes change nothing and say what is wrong", async () => {
  const { site, ask } = await start();
  await using _ = site;
  const ada = await site.deps.owners.ensure("ada@example.org");
  const { id } = (await ask("POST", "/keys", {
    body: { account: ada, description: "Mine" },
  })).json;
  const { json: project } = await ask("POST", "/projects", {
    body: { name: "Shop" },
  });
  const before = await site.stored();
  for (const { line, sent, status, says } of MISTAKES) {
    const [method = "", place = ""] = line.split(" ");
    const path = place.replace(":key", id).replace(":owner", ada)
      .replace(":project", project.id);
    const answer = await ask(method, path, sent);
    assert.equal(answer.status, status, `${line}: ${answer.text}`);
    assert.match(answer.text, says);
    assert.match(answer.text, /^\{"error":\{"code":"/);
  }
  assert.deepEqual(await site.stored(), before);
});
