/** The configuration of key-admin, from variables and files. */
import assert from "node:assert/strict";
import { configFrom } from "./config.ts";
import { UNLIMITED } from "@gateway/shared/keys/record";

const noFile = (path: string): string => assert.fail(`read ${path}`);

Deno.test("configFrom() starts on this machine without any variable, and applies the operator's settings", () => {
  assert.partialDeepStrictEqual(configFrom({ REDIS_URL: "" }, noFile), {
    port: 8081,
    redis: { url: "redis://127.0.0.1:6379" },
    publicUrl: null,
    oidc: null,
  });
  const config = configFrom({
    PORT: "0",
    PUBLIC_URL: "https://console.example.org/",
    API_URL: "https://api.example.org/v1/",
    TRUSTED_PROXIES: "10.0.0.1, 10.0.0.2",
    OIDC_ISSUER: "https://id.example.org",
    OIDC_CLIENT_ID: "console",
    OIDC_CLIENT_SECRET_FILE: "/run/secret",
    OIDC_ALLOWED: "Ada@Example.org,@corp.test",
  }, () => "s3cret\n");
  assert.partialDeepStrictEqual(config, {
    publicUrl: new URL("https://console.example.org/"),
    apiUrl: "https://api.example.org/v1",
    edgeUrl: "https://api.example.org/v1",
    trustedProxies: ["10.0.0.1", "10.0.0.2"]
      .map((address) => ({ address, bits: 32 })),
    oidc: {
      allowed: ["ada@example.org", "@corp.test"],
      reauthentication: "checked",
      clientSecret: "s3cret",
    },
  });
  const EDGE_URL = "http://edge-auth:8080/v1/";
  const { edgeUrl } = configFrom({ EDGE_URL }, noFile);
  assert.equal(edgeUrl, "http://edge-auth:8080/v1");
});

Deno.test("configFrom() applies default limits and has none of its own", () => {
  const none = { key: UNLIMITED, owner: UNLIMITED };
  assert.deepEqual(configFrom({}, noFile).defaultLimits, none);
  const names = "REQUESTS_PER_MINUTE TOKENS_PER_MINUTE TOKENS_PER_DAY " +
    "CONCURRENCY IMAGES_PER_DAY CHARACTERS_PER_DAY AUDIO_SECONDS_PER_DAY " +
    "VIDEO_SECONDS_PER_DAY VIDEO_JOBS QUEUE_WEIGHT " +
    "BUDGET_DAY BUDGET_MONTH BUDGET_TOTAL";
  const variables = names.split(" ").map((name, at) => [name, `${at + 1}`]);
  const most = "1000000000000";
  const { defaultLimits: { key, owner } } = configFrom({
    ...Object.fromEntries(variables.map(([name, n]) => [`KEY_${name}`, n])),
    OWNER_TOKENS_PER_MINUTE: most,
    OWNER_TOKENS_PER_DAY: "0",
  }, noFile);
  const billion = 1_000_000_000;
  const budgets = [11 * billion, 12 * billion, 13 * billion];
  assert.deepEqual(
    Object.values(key),
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...budgets],
  );
  assert.deepEqual(owner, { ...UNLIMITED, tokensPerMinute: Number(most) });
});

Deno.test("configFrom() knows models without their keys, and assumes the simulator without a model server", () => {
  const MODEL_SIMULATOR_URL = "http://127.0.0.1:8090/v1";
  const UPSTREAM_BASE_URL = "http://127.0.0.1:8000/v1";
  const rows: {
    isSimulated: boolean;
    variables: Record<string, string>;
    model?: string;
  }[] = [
    { isSimulated: false, variables: {} },
    {
      isSimulated: true,
      variables: { MODEL_SIMULATOR_URL },
      model: "neutral-3.7-plus",
    },
    {
      isSimulated: false,
      variables: { MODEL_SIMULATOR_URL, UPSTREAM_BASE_URL },
      model: "neutral-3.7-plus",
    },
    {
      isSimulated: false,
      variables: { MODEL_SIMULATOR_URL, MODELS_FILE: "models.json" },
      model: "a",
    },
  ];
  const backend = { type: "openai", base_url: "http://a/v1", model: "m" };
  const withKey = { ...backend, api_key_env: "NOT_SET_HERE" };
  const file = JSON.stringify({ models: [{ id: "a", backends: [withKey] }] });
  for (const { isSimulated, variables, model } of rows) {
    const config = configFrom(variables, () => file);
    assert.equal(config.isSimulated, isSimulated);
    const [id] = config.catalog?.keys() ?? [];
    assert.equal(id, model);
  }
});

const OIDC = {
  OIDC_ISSUER: "https://id.example.org",
  OIDC_CLIENT_ID: "console",
  OIDC_CLIENT_SECRET: "s3cret",
  OIDC_ALLOWED: "@corp.test",
};

Deno.test("configFrom() takes an issuer without TLS on this machine only", () => {
  for (const host of ["127.0.0.1", "localhost", "[::1]"]) {
    const OIDC_ISSUER = `http://${host}:8080`;
    const { oidc } = configFrom({ ...OIDC, OIDC_ISSUER }, noFile);
    assert.equal(oidc?.issuer.hostname, host);
  }
});

Deno.test("configFrom() reports every mistake at once, without secrets", () => {
  const cases: [variables: Record<string, string>, says: RegExp][] = [
    [{ PORT: "70000", LOG_LEVEL: "loud" }, /PORT[\s\S]*LOG_LEVEL/],
    [{ PUBLIC_URL: "http://console.example.org" }, /PUBLIC_URL/],
    [{ KEY_CONCURRENCY: "-1" }, /KEY_CONCURRENCY/],
    [{ KEY_BUDGET_DAY: "-1" }, /KEY_BUDGET_DAY[^]*an amount of CURRENCY/],
    [{ OWNER_BUDGET_TOTAL: "1e3" }, /OWNER_BUDGET_TOTAL/],
    [{ BUDGET_TIME_ZONE: "Berlin" }, /BUDGET_TIME_ZONE[^]*a time zone such as/],
    [{ OWNER_REQUESTS_PER_MINUTE: "1000001" }, /OWNER_REQUESTS_PER_MINUTE/],
    [{ PUBLIC_URL: "https://u@console.example.org/?q#f" }, /PUBLIC_URL/],
    [{ OIDC_ISSUER: "https://id.example.org" }, /CLIENT_ID[\s\S]*ALLOWED/],
    [{ ...OIDC, OIDC_ISSUER: "http://id.example.org" }, /OIDC_ISSUER/],
    [{ ...OIDC, OIDC_ISSUER: "http://127.0.0.1.evil.test" }, /OIDC_ISSUER/],
    [{ ...OIDC, OIDC_ALLOWED: "corp.test" }, /OIDC_ALLOWED/],
    [{ ...OIDC, OIDC_REAUTHENTICATION: "off" }, /OIDC_REAUTHENTICATION/],
    [{ PROJECTS_CREATED_BY: "nobody" }, /PROJECTS_CREATED_BY/],
    [
      { ...OIDC, OIDC_GROUPS_CLAIM: "g", OIDC_GROUPS: "a=b" },
      /OIDC_GROUPS="a=b"/,
    ],
    [{ ...OIDC, OIDC_GROUPS_CLAIM: "groups" }, /OIDC_GROUPS is needed/],
    [{ NOTIFY_URL: "ftp://a/s3cret" }, /^(?![^]*s3cret)[^]*NOTIFY_URL/],
    [{ NOTIFY_URL: "https://a/" }, /NOTIFY_SECRET is needed/],
    [
      { NOTIFY_URL: "https://a/", NOTIFY_SECRET: "whsec_c2hvcnQ=" },
      /^(?![^]*c2hvcnQ)[^]*NOTIFY_SECRET/,
    ],
    [{ ...OIDC, OIDC_GROUPS: "{}" }, /OIDC_GROUPS_CLAIM is needed/],
    [{ ...OIDC, OIDC_ALLOWED: "a\u200Bb@corp.test" }, /OIDC_ALLOWED/],
    [{ REDIS_URL: "http://u:s3cret@x" }, /^(?![^]*s3cret)[^]*REDIS_URL/],
  ];
  for (const [variables, says] of cases) {
    assert.throws(() => configFrom(variables, noFile), says);
  }
});
