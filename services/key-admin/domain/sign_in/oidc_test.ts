import assert from "node:assert/strict";
import {
  startConsole,
  storedKey,
  type TestClient,
} from "../../console_fixture.ts";
import { startProvider, type TestProvider } from "./oidc_fixture.ts";

async function begin(client: TestClient): Promise<URL> {
  const answer = await client.get("/sign-in/oidc");
  assert.equal(answer.status, 302, answer.text);
  return new URL(answer.headers.get("location") ?? "");
}

const pathOf = ({ pathname, search }: URL) => pathname + search;

async function comeBack(
  provider: TestProvider,
  client: TestClient,
  change?: (back: URL) => void,
) {
  const back = provider.authorize(await begin(client));
  change?.(back);
  return await client.get(pathOf(back));
}

Deno.test("ASVS 10.1.2, 10.2.1, API7: code flow with PKCE, state and nonce signs the owner in", async () => {
  await using provider = startProvider();
  await using site = await startConsole({ oidc: provider.client });
  const page = await site.client().get("/sign-in");
  assert.match(page.text, /Continue with Example/);
  const client = site.client();
  const url = await begin(client);
  for (const name of ["state", "nonce", "code_challenge"]) {
    assert.ok((url.searchParams.get(name) ?? "").length >= 40, name);
  }
  assert.equal(url.searchParams.get("code_challenge_method"), "S256");
  assert.equal(url.searchParams.get("response_type"), "code");
  const answer = await client.get(pathOf(provider.authorize(url)));
  assert.equal(answer.status, 303, answer.text);
  assert.equal(provider.verifierFitted, true);
  assert.equal((await client.get("/keys")).status, 200);
  assert.match((await client.get("/account")).text, /ada@example\.org/);
});

Deno.test("ASVS 6.8.1, 10.5.2: issuer and subject identify a person, not the address", async () => {
  await using provider = startProvider();
  await using site = await startConsole({ oidc: provider.client });
  const ada = site.client();
  await comeBack(provider, ada);
  const ownerId = await site.deps.owners.find("ada@example.org") ?? "";
  await storedKey(site, ownerId, { description: "Adas key" });
  provider.claims = { email: "other@corp.test" };
  const renamed = site.client();
  await comeBack(provider, renamed);
  assert.match((await renamed.get("/keys")).text, /Adas key/);
  provider.claims = { sub: "subject-2", email: "other@corp.test" };
  const other = site.client();
  await comeBack(provider, other);
  assert.ok(!(await other.get("/keys")).text.includes("Adas key"));
  await site.deps.owners.setState(ownerId, "disabled");
  provider.claims = {};
  const refused = await comeBack(provider, site.client());
  assert.equal(refused.status, 403);
  assert.match(refused.text, /account is disabled/);
});

Deno.test("ASVS 10.1.2, 10.2.1, 10.5.1, 10.5.3, 10.5.4: any mismatch refuses the sign-in", async (t) => {
  await using provider = startProvider();
  await using site = await startConsole({ oidc: provider.client });
  const past = Math.floor(Date.now() / 1_000) - 3_600;
  const claims: [string, Record<string, unknown>, status: number][] = [
    ["10.5.1: another nonce", { nonce: "x".repeat(43) }, 400],
    ["10.5.3: another issuer", { iss: "https://evil.test" }, 400],
    ["10.5.4: another audience", { aud: "another-client" }, 400],
    ["over", { iat: past - 60, exp: past }, 400],
    ["no subject", { sub: undefined }, 400],
    ["address not verified", { email_verified: false }, 403],
    ["no address", { email: undefined }, 403],
    ["address not allowed", { email: "eve@example.org" }, 403],
    ["a domain with the same ending", { email: "eve@notcorp.test" }, 403],
    ["an allowed domain in front", { email: "@corp.test@evil.test" }, 403],
  ];
  for (const [name, wrong, status] of claims) {
    await t.step(name, async () => {
      provider.claims = wrong;
      const client = site.client();
      assert.equal((await comeBack(provider, client)).status, status);
      assert.equal((await client.get("/keys")).status, 302);
    });
  }
  provider.claims = {};
  await t.step("a signature by another key", async () => {
    provider.forges = true;
    const answer = await comeBack(provider, site.client());
    provider.forges = false;
    assert.equal(answer.status, 400);
  });
  const urls: [name: string, change: (back: URL) => void][] = [
    ["10.2.1: another state", (back) => back.searchParams.set("state", "x")],
    ["10.2.1: no state", (back) => back.searchParams.delete("state")],
    ["no code", (back) => back.searchParams.delete("code")],
    ["an error", (back) => {
      back.searchParams.delete("code");
      back.searchParams.set("error", "access_denied");
    }],
  ];
  for (const [name, change] of urls) {
    await t.step(name, async () => {
      const answer = await comeBack(provider, site.client(), change);
      assert.equal(answer.status, 400);
    });
  }
  await t.step("a cookie that is not ours", async () => {
    const client = site.client();
    const back = provider.authorize(await begin(client));
    const { cookies } = client;
    const [name = "", flow = ""] = [...cookies].find(([, value]) =>
      value.includes(".")
    ) ?? [];
    const [, , nonce] = flow.split(".");
    for (const forged of ["x", "..", `..${nonce}`, `${flow}.x`]) {
      cookies.set(name, forged);
      assert.equal((await client.get(pathOf(back))).status, 400, forged);
    }
  });
  await t.step("another browser's callback (login CSRF)", async () => {
    const attacker = site.client();
    const back = provider.authorize(await begin(attacker));
    const victim = site.client();
    assert.equal((await victim.get(pathOf(back))).status, 400);
  });
  await t.step("the same callback twice", async () => {
    const client = site.client();
    const back = provider.authorize(await begin(client));
    assert.equal((await client.get(pathOf(back))).status, 303);
    assert.equal((await client.get(pathOf(back))).status, 400);
  });
});

Deno.test("a failing provider is reported, and used again when it recovers", async () => {
  await using provider = startProvider();
  await using site = await startConsole({ oidc: provider.client });
  provider.isBroken = true;
  const client = site.client();
  const answer = await client.get("/sign-in/oidc");
  assert.equal(answer.status, 503);
  assert.match(answer.text, /Example does not answer.*"\/sign-in"/s);
  assert.ok(site.logLines.some((line) => line.includes("oidc_unavailable")));
  provider.isBroken = false;
  await begin(client);
});
