/** Cases A: who may call. */
import assert from "node:assert/strict";
import {
  assertRequestId,
  type Context,
  createKey,
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
  assert.ok(
    response.headers.get("content-type")?.startsWith("application/json"),
    what,
  );
  if (status === 401) {
    assert.ok(
      response.headers.get("www-authenticate")?.startsWith("Bearer"),
      what,
    );
  }
  assertRequestId(response, what);
}

export async function authenticationCases(
  t: Deno.TestContext,
  { cluster, call }: Context,
): Promise<void> {
  const url = `${cluster.baseUrl()}/chat/completions`;
  const key = cluster.state.api_key;
  // As bytes: for a text, fetch would add a Content-Type of its own.
  const ask = (headers: HeadersInit, body = JSON.stringify(M1)) =>
    fetch(url, {
      method: "POST",
      headers,
      body: new TextEncoder().encode(body),
    });

  await t.step("A1-A3 no key, an invalid key: 401 to the letter", async () => {
    await assertUnauthorized(await ask({}), "no key");
    await assertUnauthorized(
      await ask({ authorization: "Bearer sk-wrong" }),
      "sk-wrong",
    );
  });
  await t.step("A4 the scheme's case does not matter", async () => {
    for (const scheme of ["bearer", "BEARER", "Bearer "]) {
      const response = await ask({ authorization: `${scheme} ${key}` });
      assert.equal(response.status, 200, scheme);
      await response.body?.cancel();
    }
  });
  await t.step("A5 other schemes, no scheme, no credential: 401", async () => {
    for (
      const authorization of [
        `Basic ${btoa(`u:${key}`)}`,
        key,
        "Bearer ",
        "Bearer",
      ]
    ) {
      await assertUnauthorized(
        await ask({ authorization }),
        authorization.slice(0, 8),
      );
    }
  });
  await t.step("A5b near misses of a valid key: 401", async () => {
    const swapped = key.slice(0, 10) + key.charAt(11) + key.charAt(10) +
      key.slice(12);
    for (
      const wrong of [key.slice(0, -1), `${key}x`, swapped, key.toLowerCase()]
    ) {
      if (wrong === key) continue;
      await assertUnauthorized(
        await ask({ authorization: `Bearer ${wrong}` }),
        "near miss",
      );
    }
  });
  await t.step(
    "A6 disabled 403, enabled 200, deleted 401, at once",
    async () => {
      const created = await createKey(cluster);
      const authorization = `Bearer ${created.key}`;
      const status = async () => {
        const response = await ask({ authorization });
        if (response.status !== 200) {
          await assertUnauthorized(response, "A6", response.status);
        } else await response.body?.cancel();
        return response.status;
      };
      assert.equal(await status(), 200);
      await cluster.keys("disable", created.id);
      assert.equal(await status(), 403);
      await assertUnauthorized(
        await ask({ authorization }, "{"),
        "disabled key, bad body",
        403,
      );
      await cluster.keys("enable", created.id);
      assert.equal(await status(), 200);
      await cluster.keys("delete", created.id);
      assert.equal(await status(), 401);
    },
  );
  await t.step("A7 two Authorization headers: 401 in both orders", async () => {
    const valid = `Authorization: Bearer ${key}\r\n`;
    const invalid = "Authorization: Bearer sk-wrong\r\n";
    for (const headers of [valid + invalid, invalid + valid, valid + valid]) {
      const answer = await rawExchange(url, [
        `GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${headers}\r\n`,
      ]);
      assert.match(answer, /^HTTP\/1.1 401 /);
    }
  });
  await t.step("A8 a key in the query is not accepted", async () => {
    const response = await fetch(`${url}?api_key=${key}`, {
      method: "POST",
      body: JSON.stringify(M1),
    });
    await assertUnauthorized(response, "query");
  });
  await t.step("A9 without a key no path is revealed", async () => {
    await assertUnauthorized(await ask({}, "{"), "malformed JSON");
    const base = cluster.baseUrl();
    await assertUnauthorized(await fetch(`${base}/nope`), "unknown path");
    await assertUnauthorized(await fetch(url), "wrong method");
    await assertUnauthorized(
      await fetch(`${base}/images/generations`, { method: "POST" }),
      "images",
    );
  });
  await t.step("A10 models need a key too", async () => {
    await assertUnauthorized(
      await fetch(`${cluster.baseUrl()}/models`),
      "models",
    );
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
}
