/** Sign-in with an OpenID Connect provider. */
import assert from "node:assert/strict";
import type { TestClient } from "../../client_fixture.ts";
import { startConsole, storedKey } from "../../console_fixture.ts";
import { keyForm } from "../../forms_fixture.ts";
import { ADDRESS_RATE } from "./attempts.ts";
import { TestProvider } from "./provider_fixture.ts";

async function begin(
  client: TestClient,
  path = "/sign-in/oidc",
): Promise<URL> {
  const { status, headers, text } = await client.get(path);
  assert.equal(status, 302, text);
  return new URL(headers.get("location") ?? "");
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
  await using provider = new TestProvider();
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
  await using provider = new TestProvider();
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
  await site.deps.owners.change(ownerId, { state: "disabled" });
  provider.claims = {};
  const refused = await comeBack(provider, site.client());
  assert.equal(refused.status, 403);
  assert.match(refused.text, /account is disabled/);
});

Deno.test("ASVS 10.1.2, 10.2.1, 10.5.1, 10.5.3, 10.5.4: any mismatch refuses the sign-in", async () => {
  await using provider = new TestProvider();
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
    ["wide letters", { sub: "2", email: "ａda@example.org" }, 403],
    ["an allowed domain in front", { email: "@corp.test@evil.test" }, 403],
  ];
  for (const [at, [name, wrong, status]] of claims.entries()) {
    provider.claims = wrong;
    const client = site.client(`198.51.100.${at}`);
    assert.equal((await comeBack(provider, client)).status, status, name);
    assert.equal((await client.get("/keys")).status, 302, name);
  }
  provider.claims = {};
  provider.forges = true;
  const forged = await comeBack(provider, site.client());
  assert.equal(forged.status, 400, "a signature by another key");
  provider.forges = false;
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
    const answer = await comeBack(provider, site.client(), change);
    assert.equal(answer.status, 400, name);
  }
  const client = site.client();
  const back = pathOf(provider.authorize(await begin(client)));
  const statusOf = async (browser: TestClient) =>
    (await browser.get(back)).status;
  const { cookies } = client;
  const [name = "", flow = ""] =
    [...cookies].find(([, value]) => value.includes(".")) ?? [];
  const [, , nonce] = flow.split(".");
  for (const wrong of ["x", "..", `..${nonce}`, `${flow}.x`]) {
    cookies.set(name, wrong);
    assert.equal(await statusOf(client), 400, `cookie ${wrong}`);
  }
  assert.equal(await statusOf(site.client()), 400, "login CSRF");
  cookies.set(name, flow);
  assert.equal(await statusOf(client), 303);
  assert.equal(await statusOf(client), 400, "the same callback again");
});

Deno.test("ASVS 7.5.3: an owner without a password signs in at the provider again, and a form is kept meanwhile", async () => {
  await using provider = new TestProvider();
  await using site = await startConsole({ oidc: provider.client });
  const client = site.client();
  await comeBack(provider, client);
  const ownerId = await site.deps.owners.find("ada@example.org") ?? "";
  const [session] = await site.deps.sessions.list(ownerId);
  await site.deps.sessions.update(session?.id ?? "", { checkedAtMs: 0 });
  const form = keyForm("Late", { nonce: "n".repeat(43) });
  const create = (more = {}) => client.post("/keys/new", { ...form, ...more });
  const page = await create({ confirmed_password: "" });
  assert.equal(page.status, 401);
  assert.match(page.text, /name="nonce" value="n{43}"/);
  assert.match(page.text, /href="\/sign-in\/oidc\?again=1" target="_blank"/);
  assert.equal((await create({ confirmed_password: "a guess" })).status, 401);
  assert.equal((await signInAgain(provider, client)).status, 303);
  assert.equal((await create()).status, 201);
});

/** The time `agoS` seconds ago, in seconds since 1970. */
const secondsAgo = (agoS: number) => Math.floor(Date.now() / 1_000) - agoS;

/**
 * Signs in at the provider in the way that the page asks for when somebody must prove
 * again who they are.
 */
async function signInAgain(
  provider: TestProvider,
  client: TestClient,
  claims: Record<string, unknown> = { auth_time: secondsAgo(5) },
) {
  const url = await begin(client, "/sign-in/oidc?again=1");
  assert.equal(url.searchParams.get("max_age"), "0");
  const back = provider.authorize(url);
  provider.claims = claims;
  return await client.get(pathOf(back));
}

const MONTH_SECONDS = 30 * 86_400;

Deno.test("ASVS 7.5.3: signing in again needs a provider that asked again just now", async () => {
  await using provider = new TestProvider();
  await using site = await startConsole({ oidc: provider.client });
  const cases: { name: string; authTime: unknown; status: number }[] = [
    { name: "just now", authTime: secondsAgo(5), status: 303 },
    { name: "a month ago", authTime: secondsAgo(MONTH_SECONDS), status: 403 },
    { name: "not stated", authTime: undefined, status: 403 },
    { name: "as a text", authTime: `${secondsAgo(5)}`, status: 400 },
    { name: "in an hour", authTime: secondsAgo(-3_600), status: 403 },
  ];
  for (const { name, authTime, status } of cases) {
    const client = site.client();
    const claims = { auth_time: authTime };
    const answer = await signInAgain(provider, client, claims);
    assert.equal(answer.status, status, name);
  }
});

Deno.test("ASVS 7.5.3: a session from an old sign-in at the provider creates no key", async () => {
  await using provider = new TestProvider();
  await using site = await startConsole({ oidc: provider.client });
  const cases: { name: string; authTime: unknown; status: number }[] = [
    { name: "just now", authTime: secondsAgo(5), status: 201 },
    { name: "a month ago", authTime: secondsAgo(MONTH_SECONDS), status: 401 },
    { name: "not stated", authTime: undefined, status: 401 },
  ];
  for (const [at, { name, authTime, status }] of cases.entries()) {
    provider.claims = { auth_time: authTime };
    const client = site.client();
    assert.equal((await comeBack(provider, client)).status, 303, name);
    const nonce = String(at).repeat(43);
    const form = keyForm("Late", { nonce });
    const answer = await client.post("/keys/new", form);
    assert.equal(answer.status, status, name);
  }
});

Deno.test("a provider that states no auth_time is enough where it is trusted", async () => {
  await using provider = new TestProvider({ reauthentication: "trusted" });
  await using site = await startConsole({ oidc: provider.client });
  const client = site.client();
  assert.equal((await comeBack(provider, client)).status, 303);
  const form = keyForm("New", { nonce: "n".repeat(43) });
  assert.equal((await client.post("/keys/new", form)).status, 201);
  const url = await begin(client, "/sign-in/oidc?again=1");
  assert.equal(url.searchParams.get("prompt"), "select_account");
  assert.equal(url.searchParams.get("max_age"), null);
  const back = provider.authorize(url);
  assert.equal((await client.get(pathOf(back))).status, 303);
});

Deno.test("an address counts as verified if the provider says so in its way", async () => {
  await using provider = new TestProvider();
  await using site = await startConsole({ oidc: provider.client });
  const none = { email_verified: undefined };
  const cases: { name: string; claims: object; status: number }[] = [
    { name: "as a text", claims: { email_verified: "true" }, status: 303 },
    { name: "Entra", claims: { ...none, xms_edov: true }, status: 303 },
    { name: "Entra, a number", claims: { ...none, xms_edov: 1 }, status: 303 },
    { name: "Entra, a text", claims: { ...none, xms_edov: "1" }, status: 303 },
    { name: "Entra, not", claims: { ...none, xms_edov: false }, status: 403 },
    { name: "not said", claims: none, status: 403 },
    {
      name: "denied by one",
      claims: { email_verified: false, xms_edov: true },
      status: 403,
    },
  ];
  for (const [at, { name, claims, status }] of cases.entries()) {
    provider.claims = { ...claims };
    const client = site.client(`203.0.113.${at}`);
    assert.equal((await comeBack(provider, client)).status, status, name);
  }
});

Deno.test("a provider's claims are refused unless they name a person and an address", async () => {
  await using provider = new TestProvider();
  await using site = await startConsole({ oidc: provider.client });
  const cases: { name: string; claims: Record<string, unknown> }[] = [
    { name: "an empty subject", claims: { sub: "" } },
    { name: "a long subject", claims: { sub: "s".repeat(256) } },
    { name: "a new line", claims: { email: "a\nb@corp.test" } },
    { name: "a new line at the end", claims: { email: "ada@example.org\n" } },
    { name: "NUL", claims: { email: "a\0b@corp.test" } },
    {
      name: "text from right to left",
      claims: { email: "a\u202Eb@corp.test" },
    },
    { name: "no width", claims: { email: "a\u200Bb@corp.test" } },
    { name: "an invisible letter", claims: { email: "a\u3164b@corp.test" } },
    { name: "a variation selector", claims: { email: "a\uFE0Fb@corp.test" } },
    { name: "nobody's", claims: { email: "@corp.test" } },
    { name: "very long", claims: { email: `${"a".repeat(5_000)}@corp.test` } },
  ];
  for (const [at, { name, claims }] of cases.entries()) {
    provider.claims = { sub: `odd-${at}`, ...claims };
    const client = site.client(`192.0.2.${at}`);
    assert.equal((await comeBack(provider, client)).status, 403, name);
    assert.equal((await client.get("/keys")).status, 302, name);
  }
});

Deno.test("ASVS 2.4.1: an address without an account makes few calls to the provider", async () => {
  await using provider = new TestProvider();
  await using site = await startConsole({ oidc: provider.client });
  const [verifier, state, nonce] = ["v", "s", "n"].map((each) =>
    each.repeat(43)
  );
  const statuses: number[] = [];
  for (let tries = 0; tries < ADDRESS_RATE.count + 5; tries += 1) {
    const client = site.client("203.0.113.9");
    client.cookies.set("__Host-oidc", [verifier, state, nonce].join("."));
    const path = `/sign-in/oidc/callback?code=x&state=${state}`;
    statuses.push((await client.get(path)).status);
  }
  assert.equal(provider.exchanges, ADDRESS_RATE.count);
  assert.deepEqual(statuses.slice(ADDRESS_RATE.count), Array(5).fill(429));
  const elsewhere = await comeBack(provider, site.client("203.0.113.10"));
  assert.equal(elsewhere.status, 303);
});

Deno.test("a failing provider is reported, and used again when it recovers", async () => {
  await using provider = new TestProvider();
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
