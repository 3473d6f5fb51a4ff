// Cases A: who may call. What else is no credential, and where else one is not
// accepted: tests/hostile/http_test.ts.
import assert from "node:assert/strict";
import {
  assertRequestId,
  type Cases,
  M1,
  rawExchange,
  UNAUTHORIZED,
} from "./context.ts";

async function assertUnauthorized(
  response: Response,
  what: string,
  status = 401,
): Promise<void> {
  assert.equal(response.status, status, what);
  assert.deepEqual(await response.json(), UNAUTHORIZED, what);
  const header = (name: string) => response.headers.get(name) ?? "";
  assert.match(header("content-type"), /^application\/json/, what);
  if (status === 401) assert.match(header("www-authenticate"), /^Bearer/, what);
  assertRequestId(response, what);
}

export const authenticationCases: Cases = async (
  t,
  { cluster, call, fetch },
) => {
  const base = cluster.baseUrl();
  const url = `${base}/chat/completions`;
  const key = cluster.state.api_key;
  // As bytes: for a text, fetch would add a Content-Type of its own.
  const ask = (headers: HeadersInit, body = JSON.stringify(M1)) =>
    fetch(url, {
      method: "POST",
      headers,
      body: new TextEncoder().encode(body),
    });

  await t.step("A1-A5 no key, no valid key: 401 to the letter", async () => {
    await assertUnauthorized(await ask({}), "no key");
    const wrong = [
      ...["Bearer sk-wrong", `Basic ${btoa(`u:${key}`)}`],
      ...[key, "Bearer ", "Bearer"],
    ];
    for (const authorization of wrong) {
      const what = authorization.slice(0, 8);
      await assertUnauthorized(await ask({ authorization }), what);
    }
  });
  await t.step("A4 the scheme's case does not matter", async () => {
    for (const scheme of ["bearer", "BEARER", "Bearer "]) {
      const response = await ask({ authorization: `${scheme} ${key}` });
      assert.equal(response.status, 200, scheme);
      await response.body?.cancel();
    }
  });
  await t.step("A6 disabled 403, enabled 200, deleted 401", async () => {
    const created = await cluster.createKey();
    const authorization = `Bearer ${created.key}`;
    const becomes = async (status: number) => {
      const response = await ask({ authorization });
      if (status === 200) {
        assert.equal(response.status, 200, await response.text());
      } else await assertUnauthorized(response, "A6", status);
    };
    await becomes(200);
    await cluster.keys("disable", created.id);
    await becomes(403);
    const bad = await ask({ authorization }, "{");
    await assertUnauthorized(bad, "disabled key, bad body", 403);
    await cluster.keys("enable", created.id);
    await becomes(200);
    await cluster.keys("delete", created.id);
    await becomes(401);
  });
  await t.step("A9-A10 without a key no path is revealed", async () => {
    await assertUnauthorized(await ask({}, "{"), "malformed JSON");
    await assertUnauthorized(await fetch(url), "wrong method");
    await assertUnauthorized(await fetch(`${base}/models`), "models");
    const images = `${base}/images/generations`;
    await assertUnauthorized(await fetch(images, { method: "POST" }), "images");
    const response = await call("/models");
    assert.equal(response.status, 200);
    await response.body?.cancel();
  });
  await t.step("A11 no key: refused before the body is read", async () => {
    // The body never comes: an edge that waits for it would not answer.
    const answer = await rawExchange(url, [
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" +
      "Authorization: Bearer sk-wrong\r\nContent-Length: 1000000\r\n\r\n",
    ]);
    assert.match(answer, /^HTTP\/1.1 401 /);
  });
};
