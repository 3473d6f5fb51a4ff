import assert from "node:assert/strict";
import { readConfig } from "./config.ts";

Deno.test("readConfig() starts on this machine without any variable", () => {
  const config = readConfig({ REDIS_URL: "" });
  assert.deepEqual(
    [config.port, config.hostname, config.redis.url, config.publicUrl],
    [8081, "127.0.0.1", "redis://127.0.0.1:6379", null],
  );
  assert.equal(config.oidc, null);
});

Deno.test("readConfig() takes what an operator sets", () => {
  const config = readConfig({
    PORT: "0",
    PUBLIC_URL: "https://console.example.org/",
    API_URL: "https://api.example.org/v1/",
    TRUSTED_PROXIES: "10.0.0.1, 10.0.0.2",
    OIDC_ISSUER: "https://id.example.org",
    OIDC_CLIENT_ID: "console",
    OIDC_CLIENT_SECRET: "s3cret",
    OIDC_ALLOWED: "Ada@Example.org,@corp.test",
  });
  assert.equal(config.publicUrl?.origin, "https://console.example.org");
  assert.equal(config.apiUrl, "https://api.example.org/v1");
  assert.deepEqual(config.trustedProxies, ["10.0.0.1", "10.0.0.2"]);
  assert.deepEqual(config.oidc?.allowed, ["ada@example.org", "@corp.test"]);
});

Deno.test("readConfig() names every mistake at once, and no secret", async (t) => {
  const cases: [variables: Record<string, string>, says: RegExp][] = [
    [{ PORT: "70000", LOG_LEVEL: "loud" }, /PORT[\s\S]*LOG_LEVEL/],
    [{ PUBLIC_URL: "http://console.example.org" }, /https/],
    [{ PUBLIC_URL: "https://console.example.org/path" }, /origin/],
    [{ REDIS_URL: "http://x" }, /REDIS_URL/],
    [{ OIDC_ISSUER: "https://id.example.org" }, /CLIENT_ID[\s\S]*ALLOWED/],
  ];
  for (const [variables, says] of cases) {
    await t.step(JSON.stringify(variables), () => {
      assert.throws(() => readConfig(variables), says);
    });
  }
  assert.throws(
    () => readConfig({ REDIS_URL: "http://u:s3cret@x" }),
    (error: Error) => !error.message.includes("s3cret"),
  );
});
