/** Which variables an edge takes, and which it refuses. */
import assert from "node:assert/strict";
import { ConfigError, parseEnv } from "@gateway/shared/process/env";
import { EDGE_VARIABLES } from "./config.ts";

const read = (env: Record<string, string>) =>
  parseEnv(EDGE_VARIABLES, env, () => assert.fail("reads no file"));

Deno.test("by default no proxy is trusted and no web page may call; mistakes name the variable", () => {
  const config = read({});
  assert.deepEqual(config.TRUSTED_PROXIES, []);
  assert.deepEqual(config.CORS_ORIGINS, []);
  assert.equal(config.UNKNOWN_KEYS_PER_SECOND, 20);
  const origins = [
    "https://app.example.org",
    "http://localhost:3000",
    "app://obsidian.md",
    "tauri://localhost",
    "chrome-extension://abcdefghijklmnop",
    "*",
  ];
  const listed = read({ CORS_ORIGINS: origins.join(", ") });
  assert.deepEqual(listed.CORS_ORIGINS, origins);
  const mistakes: [name: string, value: string][] = [
    ["TRUSTED_PROXIES", "proxy.example.org"],
    ["TRUSTED_PROXIES", "10.0.0.1,*"],
    ["CORS_ORIGINS", "https://*.example.org"],
    ["CORS_ORIGINS", "null"],
    ["CORS_ORIGINS", "app.example.org"],
    ["CORS_ORIGINS", "https://app.example.org/"],
    ["UNKNOWN_KEYS_PER_SECOND", "0"],
  ];
  for (const [name, value] of mistakes) {
    assert.throws(
      () => read({ [name]: value }),
      (error) => error instanceof ConfigError && error.message.includes(name),
      `${name}=${value}`,
    );
  }
});
