import assert from "node:assert/strict";
import { ConfigError, parseEnv } from "@gateway/shared/process/env";
import { EDGE_VARIABLES } from "./config.ts";

const read = (env: Record<string, string>) =>
  parseEnv(EDGE_VARIABLES, env, () => assert.fail("reads no file"));

Deno.test("by default nobody is trusted, every host is served and no page may call", () => {
  const config = read({});
  assert.deepEqual(config.trustedProxies, []);
  assert.deepEqual(config.allowedHosts, []);
  assert.deepEqual(config.corsOrigins, []);
  assert.equal(config.unknownKeysPerSecond, 20);
});

Deno.test("lists of the door are taken apart", () => {
  const config = read({
    TRUSTED_PROXIES: "10.0.0.0/8, fd00::/8,192.0.2.1",
    ALLOWED_HOSTS: "api.example.org,localhost:8080, [::1]:8080",
    CORS_ORIGINS: "https://app.example.org,http://localhost:3000",
  });
  assert.deepEqual(config.trustedProxies, [
    "10.0.0.0/8",
    "fd00::/8",
    "192.0.2.1",
  ]);
  assert.deepEqual(config.allowedHosts, [
    "api.example.org",
    "localhost:8080",
    "[::1]:8080",
  ]);
  assert.deepEqual(config.corsOrigins, [
    "https://app.example.org",
    "http://localhost:3000",
  ]);
});

const MISTAKES: [name: string, value: string][] = [
  ["TRUSTED_PROXIES", "proxy.example.org"],
  ["TRUSTED_PROXIES", "10.0.0.0/33"],
  ["TRUSTED_PROXIES", "10.0.0.1,*"],
  ["ALLOWED_HOSTS", "https://api.example.org"],
  ["ALLOWED_HOSTS", "*"],
  ["CORS_ORIGINS", "*"],
  ["CORS_ORIGINS", "app.example.org"],
  ["CORS_ORIGINS", "https://app.example.org/"],
  ["UNKNOWN_KEYS_PER_SECOND", "0"],
];

for (const [name, value] of MISTAKES) {
  Deno.test(`${name}=${value} is a mistake that names the variable`, () => {
    assert.throws(() => read({ [name]: value }), (error) => {
      assert.ok(error instanceof ConfigError);
      assert.ok(error.message.includes(name), error.message);
      return true;
    });
  });
}
